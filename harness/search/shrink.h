// Shrinking: a scenario that fails, made as small as it gets while the same check keeps failing. Edits are values of
// the scenario's JSON, tried in a fixed order, so that the same scenario always shrinks to the same one.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "harness/input/json.h"
#include "harness/verdict/exit_status.h"

#include <nlohmann/json.hpp>

namespace seeksim::harness {

// How a scenario, given as JSON, ended. A check that had nothing to look at found nothing: it is not in `red`.
struct Trial {
  ExitStatus status = ExitStatus::as_expected;
  std::vector<std::string> red;       // checks, as in the report
  std::vector<std::string> problems;  // why it could not be run
  Json choices;                       // of its schedule, where its decisions are numbered: deviations from `first`
};
// Runs it as if it had stood in `file` (texts are found from there), whatever it expects. 0 s: no limit.
Trial try_scenario(Json document, const std::string& file, double wall_limit_s = 0);

// What must stay: the run ends with this status and this check is red; no check: the status says it all (no progress,
// a bug).
struct Failure {
  ExitStatus status = ExitStatus::as_expected;
  std::string check;
  bool in(const Trial& trial) const;
  std::string text() const;  // "no_races is red"
};
// The failure of a trial: the check called `wanted` (as its report names it, or without the argument), the first red
// one where that is empty. Its status is as_expected when there is none.
Failure failure_of(const Trial& trial, const std::string& wanted = {});

// One thing that may be simpler: where (a JSON pointer; '*' stands for any one key or place), and the values to try,
// simplest first. A null value takes the key away. Each value is simpler than the present one, so shrinking ends.
struct Simplification {
  const char* where;
  std::vector<Json> (*values)(const Json& present);
};
// All of them, those that save most work first.
const std::vector<Simplification>& simplifications();

struct Shrunk {
  Json scenario;                   // says "expect": "pass", so that `seeksim run` of it is red
  std::vector<std::string> edits;  // what was done, "steps: 3 -> 1"
  int runs = 0;
  int refused = 0;       // candidates that are no scenarios
  bool smallest = true;  // false: the bound on runs ended it
};
enum class Verdict { fails_alike, differs, refused };
// `judge` says of each candidate whether it fails as `document` does. Takes at most `runs_max` that are not refused.
Shrunk shrink(const Json& document, const std::function<Verdict(const Json&)>& judge, int runs_max);
// The same with real runs: until nothing simpler shows the failure. A schedule that was drawn becomes the few decisions
// that matter, where they are few.
Shrunk shrink(const Json& document, const std::string& file, const Failure& failure, int runs_max,
              double wall_limit_s = 0);

// A scenario as people write them: a key of the top a line.
std::string scenario_text(const Json& document);

}  // namespace seeksim::harness
