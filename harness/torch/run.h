// From a scenario and a script to a verdict.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "harness/report/outcome.h"
#include "harness/report/report.h"
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
  Style style;
};

// Builds the backend, runs the script, judges, tells. Throws BadInput: nothing was run, or the script failed by itself
// before its first step.
Outcome run_script(const RunRequest& request, const Print& print);

// What plan.json says (pytorch/README.md).
Json plan_json(const TorchScenario& scenario, const std::string& module);

// Why a script that made no step is bad input and no finding; empty: it is none. A rank that a fault ended, that waits
// or that is blamed is a finding.
std::string failed_by_itself(const TorchRun& run);

}  // namespace seeksim::harness::torch
