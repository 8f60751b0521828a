// Checks: oracles over what a run recorded. A table, one row a check; a check that found nothing to look at is red.
// To add one: a row in check_table.cpp, a judge in oracles/, a green and a red case in
// tests/harness/verdict/checks_test.cpp, and a negative scenario.
#pragma once

#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "harness/input/json.h"
#include "harness/input/shape.h"
#include "harness/oracles/arguments.h"
#include "harness/oracles/evidence.h"
#include "harness/scenario/scenario.h"
#include "harness/verdict/exit_status.h"

namespace seeksim::harness {

// What a check looks at beside the run's own record: a set of bits. All but the first two are runs beside it
// (run/side_runs.h).
enum class Needs : unsigned {
  nothing = 0,
  golden = 1 << 0,       // the undisturbed run on one rank
  gradients = 1 << 1,    // a digest of each step's gradients, of the run and of its golden
  undisturbed = 1 << 2,  // how long the same world takes without faults
  contract = 1 << 3,     // of fast arithmetic: the same training by the contract
  step = 1 << 4,         // how long a step takes that nothing disturbs
  fp32 = 1 << 5,         // the losses of the same training in fp32 on one rank
  no_quirks = 1 << 6,    // the same run without its quirks
  tagged = 1 << 7,       // the same run with tagged gradients
  twice = 1 << 8,        // the same run once more: --verify-determinism
  reference = 1 << 9     // the same training on one rank, held against the reference
};
constexpr Needs operator|(Needs a, Needs b) { return Needs(unsigned(a) | unsigned(b)); }
// Whether the two sets share a bit.
constexpr bool has(Needs all, Needs some) { return (unsigned(all) & unsigned(some)) != 0; }

// One check: a row of check_table.cpp, or a user's (harness/loading/extensions.h).
struct CheckInfo {
  const char* name;
  const char* argument = "";                 // what comes after the colon, for people; "": it takes none
  std::optional<Shape> form = std::nullopt;  // what X may be in {name: X}, for the schema; none: there is no such form
  Needs needs = Needs::nothing;
  // What is wrong with an argument as written; empty: nothing. ranks: 0 when unknown.
  std::function<std::string(const std::string& argument, int ranks)> wrong = want_none;
  std::function<Finding(const Evidence& evidence, const std::string& argument)> judge;
  // Whether there is something to judge in a run that did not ask. Empty: it is judged only where it is asked for.
  std::function<bool(const Evidence& evidence)> unasked = {};
  bool of_values = false;   // a run of shapes, which has no values, cannot be judged by it
  const char* description;  // for people: `seeksim list checks` and docs/reference/checks.md
};
std::deque<CheckInfo> built_in_checks();
// Those, and the user's.
const std::deque<CheckInfo>& check_catalogue();
void add_to_catalogue(CheckInfo check);

// What is wrong with a check as written; `what` is empty when it is fine.
struct CheckProblem {
  std::string what;
  std::string next;
};
// From "name", "name:argument" or {name: argument}. ranks: 0 when unknown.
CheckProblem read_check(const Json& written, int ranks, CheckSpec& spec);

CheckResult judge(const CheckSpec& check, const Evidence& evidence);
// What is judged in this run though its scenario does not list it.
std::vector<const CheckInfo*> judged_unasked(const Evidence& evidence);
// All that judging the scenario takes: of its checks, and of what is judged in every such run. Where faults were drawn,
// a step's time is worth a report.
Needs needs(const Scenario& scenario);
bool needs_golden(const Scenario& scenario);
bool needs_gradients(const Scenario& scenario);

// The whole run: listed checks, those that are always made (finished, faults_fired), and the expectation.
struct Judgement {
  std::vector<CheckResult> checks;
  std::string stopped;  // why training ended before its last step; empty when it did not
  ExitStatus status = ExitStatus::as_expected;
  std::string verdict;   // "pass", "fail", "no_progress", "bug"
  std::string sentence;  // for people
};
Judgement judge(const Evidence& evidence);

}  // namespace seeksim::harness
