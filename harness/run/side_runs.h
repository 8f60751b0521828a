// Runs that serve the judged one: its checks compare its record with theirs. To add one: a bit of Needs
// (verdict/checks.h), a row in side_runs.cpp, a member of Evidence.
#pragma once

#include <optional>
#include <stdexcept>
#include <string>

#include "harness/oracles/evidence.h"
#include "harness/oracles/reference_steps.h"
#include "harness/run/options.h"
#include "harness/simulate/simulate.h"
#include "harness/verdict/checks.h"

namespace seeksim::harness {

// A run that served another did not end in time: exit status 3.
struct OutOfTime : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Runs `scenario` on simulated ranks, with a bar that says `what`. Throws OutOfTime past options.wall_limit_s.
RunRecord run_aside(const Scenario& scenario, const std::string& what, SimulationOptions options, bool progress);

// The scenario once more, with tagged gradients (conservation.h).
Conservation tagged_run(const Scenario& scenario, double wall_limit_s = 0);

// The scenario's training on one rank, judged by the reference.
ReferenceVerdict reference_run(const Scenario& scenario, Judging how, double wall_limit_s = 0, bool progress = false);
// Lets the judge hear of a run on one rank. Both have to outlive the run.
void listen(ReferenceJudge& judge, SimulationOptions& options);

// How the judged run itself is simulated, but for what only it is asked for.
SimulationOptions simulation_options(const RunOptions& options);

// The run that is judged.
struct Judged {
  const Scenario& scenario;
  const RunOptions& options;
  const RunRecord& run;
  const Golden* golden = nullptr;
  const Simulation* simulation = nullptr;  // null: it ran on other ranks
};

// What side runs leave, for Evidence to point into.
struct SideRuns {
  std::optional<FastComparison> fast;
  std::optional<RunRecord> without_quirks;
  std::optional<ReferenceVerdict> reference;

  // Runs what is in `wanted`, in the order of the table, and fills the evidence.
  void run(const Judged& judged, Needs wanted, Evidence& evidence);
};

}  // namespace seeksim::harness
