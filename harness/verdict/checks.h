// Checks: oracles over what a run recorded. A table, one row a check; a check that found nothing to look at is red.
// To add one: a row in checks.cpp, a judge in run_checks.cpp or of its subject, a line in scenarios/schema.json if it
// takes an object form, a green and a red case in tests/harness/verdict/checks_test.cpp, and a negative scenario.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "harness/input/json.h"
#include "harness/oracles/conservation.h"
#include "harness/oracles/finding.h"
#include "harness/record/golden.h"
#include "harness/record/run_record.h"
#include "harness/scenario/scenario.h"
#include "harness/verdict/exit_status.h"

namespace seeksim::harness {

struct CheckResult {
  std::string name;  // as CheckSpec::text
  bool ok = false;
  std::string detail;
  bool looked = true;  // false: red because there was nothing to look at
};

struct FastComparison;  // fast.h

// All that a check may look at.
struct Evidence {
  const Scenario& scenario;
  const RunRecord& run;
  const Golden* golden = nullptr;        // there when a check needs it
  std::optional<TimeNs> undisturbed_ns;  // virtual time of the same world without faults
  std::vector<CheckResult> further;      // made elsewhere (--verify-determinism), judged with the rest
  std::optional<Conservation> conservation = std::nullopt;     // of the tagged run
  std::optional<std::vector<float>> fp32_loss = std::nullopt;  // of the same training in fp32 on one rank
  const RunRecord* without_quirks = nullptr;    // the same run as seeksim would do it; there when a quirk is on
  std::optional<double> step_s = std::nullopt;  // of a step of the same world that nothing disturbs
  const FastComparison* fast = nullptr;         // of a run of fast arithmetic
};

struct CheckInfo {
  const char* name;
  const char* argument;  // what comes after the colon, for people; "" none
  const char* summary;
  bool needs_golden = false;
  bool needs_undisturbed = false;
  bool needs_tagged = false;
  bool needs_fp32 = false;
  bool needs_step = false;  // how long one takes that nothing disturbs
};
const std::vector<CheckInfo>& check_catalogue();
// One more of them (own.h).
void add_to_catalogue(const CheckInfo& info, std::function<std::string(const std::string& argument, int ranks)> wrong,
                      std::function<Finding(const Evidence&, const std::string& argument)> look);

// What is wrong with a check as written; `what` is empty when it is fine.
struct CheckProblem {
  std::string what;
  std::string next;
};
// From "name", "name:argument" or {name: argument}. ranks: 0 when unknown.
CheckProblem read_check(const Json& written, int ranks, CheckSpec& spec);

CheckResult judge(const CheckSpec& check, const Evidence& evidence);
bool needs_golden(const Scenario& scenario);
bool needs_gradients(const Scenario& scenario);  // digests of each step's
bool needs_undisturbed(const Scenario& scenario);
bool needs_tagged(const Scenario& scenario);
bool needs_fp32(const Scenario& scenario);
bool needs_step(const Scenario& scenario);  // also where faults were drawn: they are worth a report

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
