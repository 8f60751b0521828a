// A scenario with a fault plan, from start to verdict: one run for each place or draw, all in forked processes that
// take many runs each; every run ends with the scenario's checks green or in a stop that the plan allows. The first
// red run is reported as the scenario that shows it again.
#pragma once

#include "harness/record/run_record.h"
#include "harness/run/one_run.h"

namespace seeksim::harness {

// How one run of a plan ended.
struct PlannedEnd {
  enum class How : std::uint8_t { as_expected, stopped, red } how = How::red;
  std::string why;               // of a stop: the words of the plan; of a red run: its sentence and first red check
  std::vector<std::string> red;  // checks
  std::vector<std::string> unjudged;  // checks that this case gave nothing to look at; only where cases are explored
  ExitStatus status = ExitStatus::as_expected;
};
// One run with these rules beside the scenario's own.
PlannedEnd run_planned(Scenario& scenario, const std::vector<faults::Rule>& own, const std::vector<faults::Rule>& rules,
                       const Golden* golden, double wall_limit_s);

// How much a drawn case may leave open.
enum class Cases : std::uint8_t {
  planned,   // the scenario's own plan: a stop needs words of the plan, and each check something to look at
  explored,  // nobody wrote the case: any clean stop will do, unless what is left would have sufficed (suffice.h), and
             // a check that finds nothing to look at is counted, not red
};
// The verdict on a run that was made. Explored cases take the plan's words for stops, where it has some.
PlannedEnd judge_planned(const Scenario& scenario, const RunRecord& run, const Golden* golden, Cases cases);

// Runs a loaded scenario that is no sweep: once, or each run of its fault plan. A plan that draws once is one run, with
// the report that every run has. Throws BadInput where a file cannot be written.
Outcome run_scenario(const Scenario& scenario, const RunOptions& options, const Print& print);

}  // namespace seeksim::harness
