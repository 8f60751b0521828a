// A scenario with a fault plan, from start to verdict: one run for each place or draw, all in forked processes that
// take many runs each; every run ends with the scenario's checks green or in a stop that the plan allows. The first
// red run is told as the scenario that shows it again.
#pragma once

#include "harness/record/run_record.h"
#include "harness/run/one_run.h"

namespace seeksim::harness {

// How one run of a plan ended.
struct PlannedEnd {
  enum class How : std::uint8_t { as_expected, stopped, red } how = How::red;
  std::string why;               // of a stop: the words of the plan; of a red run: its sentence and first red check
  std::vector<std::string> red;  // checks
  ExitStatus status = ExitStatus::as_expected;
};
// One run with these rules beside the scenario's own.
PlannedEnd run_planned(Scenario& scenario, const std::vector<faults::Rule>& own, const std::vector<faults::Rule>& rules,
                       const Golden* golden, double wall_limit_s);

// The same of a run that was made. any_stop: a clean stop is fine whatever its reason, unless what is
// left would have sufficed (suffice.h).
PlannedEnd judge_planned(const Scenario& scenario, const RunRecord& run, const Golden* golden, bool any_stop);

// Runs a loaded scenario that is no sweep: once, or each run of its fault plan. A plan that draws once is one run, with
// the report that every run has. Throws BadInput where a file cannot be written.
Outcome run_scenario(const Scenario& scenario, const RunOptions& options, const Print& print);

}  // namespace seeksim::harness
