// From a scenario and a script to a verdict.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "harness/report/outcome.h"
#include "harness/report/report.h"
#include "harness/torch/hosts/meeting.h"
#include "harness/torch/hosts/relay.h"
#include "harness/torch/python.h"
#include "harness/torch/run_record.h"

namespace seeksim::harness::torch {

struct RunRequest {
  std::string scenario;              // file; empty: none
  std::vector<std::string> sets;     // --set
  std::optional<int> np;             // --np
  std::vector<std::string> command;  // behind --
  std::string python;                // --python
  std::string out;                   // the run's folder; empty: a temporary one, kept where the run is red
  double wall_limit_s = 0;
  double warm_s = 0;                 // --warm: a process that has imported torch stays so long; 0: each rank imports it
  std::vector<std::string> imports;  // --import: what that process imports besides
  HostsAsked hosts;                  // --nnodes, --node-rank, --rdzv, --insecure
  Style style;
  // Called with what the run left behind, while its folder is there.
  std::function<void(const TorchRun& run, const Json& report)> shows;
};

// Builds the backend, runs the script, judges, tells. Throws BadInput: nothing was run, or the script failed by itself
// before its first step.
Outcome run_script(const RunRequest& request, const Print& print);

// With what a script is started, beside what its scenario says.
struct Start {
  std::string python;
  Built built;
  std::vector<std::string> ranks_with;  // stands before the script, in the direct form; empty: python does
  std::vector<std::string> turns;       // switches of `seeksim torch check`
  int attempt = 0;                      // starts of the job before this one: what a rule's `attempt` means
  // Of a job on several hosts.
  HostsPlan hosts;
  std::vector<std::string> host_names;
  Relay* relay = nullptr;  // lives as long as the run
  double wall_limit_s = 0;
  bool quiet = false;
  // Ranks that are forks end without taking Python apart, which touches, and so copies, all of torch. For scripts of
  // our own: nothing of theirs may wait for that end.
  bool ends_at_once = false;
};
// Runs a script with its records in this folder, which is there and holds nothing of another run, and reads them.
// Throws as run_script().
TorchRun run_in(const std::string& folder, const TorchScenario& scenario, const std::vector<std::string>& command,
                const Start& start);

// The script's name without its ending; a launcher's command is called by the script in it.
std::string script_name(const std::vector<std::string>& command);

// The variables that ranks get, beside those of a run or a rank.
Environment rank_environment(const Start& start);

// Throws BadInput where a command has no script, or one that is not there. verb: "run", "check".
void refuse_command(const std::vector<std::string>& command, const std::string& verb);

// What plan.json says (pytorch/README.md).
Json plan_json(const TorchScenario& scenario, const Start& start);

// Why a script that made no step is bad input and no finding; empty: it is none. A rank that a fault ended, that waits
// or that is blamed is a finding.
std::string failed_by_itself(const TorchRun& run);

}  // namespace seeksim::harness::torch
