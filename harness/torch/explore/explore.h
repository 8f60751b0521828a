// `seeksim torch explore`: faults by chance in a user's own script, one run after the other, judged by the run that
// nothing disturbed. What is red is shown again and shrunk.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "harness/report/outcome.h"
#include "harness/report/report.h"

namespace seeksim::harness::torch {

inline constexpr const char* kExploreSchema = "seeksim-torch-explore-1";

struct ExploreScript {
  std::vector<std::string> command;  // behind --: a script or a launcher; {dir}: the folder of its checkpoints, if any
  std::string scenario;              // file: its faults are the first case; empty: none
  std::vector<std::string> sets;     // --set
  std::string resume;                // --resume: arguments with which it goes on; empty: the same command again
  std::string budget = "60s";        // --budget
  int cases = 0;                     // --cases: end after so many; 0: by time alone
  int findings = 0;                  // --findings: end after so many different ones; 0: go on
  std::uint64_t seed = 1;            // --seed
  std::optional<int> np;             // --np
  std::string python;                // --python
  std::string out;                   // --out: findings as scenarios, and the runs that show them
  bool quiet = false;                // nothing but the result is printed
  Style style;
};

// Runs the script twice undisturbed, and as long as there is time with faults. Status 1 where something is red. Throws
// BadInput: no script, a scenario that is none, or the script fails by itself.
Outcome explore_script(const ExploreScript& request, const Print& print);

}  // namespace seeksim::harness::torch
