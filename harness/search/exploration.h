// What an exploration is asked for, which share of it this process has, and what makes two findings one.
#pragma once

#include <string>
#include <vector>

namespace seeksim::harness {

struct ExploreArguments {
  std::string file;
  std::vector<std::string> sets;
  std::string budget = "60s";  // of wall time: "90", "90s", "10m", "2h"
  std::string strategy = "mix";
  std::string seed = "1";        // of the exploration, not of the scenario; "random": another one each time
  std::string out = "explored";  // folder for what is found
  std::string report;            // JSON; empty: none
  std::string html;              // a page; empty: none
  int jobs = 0;                  // processes; 0: one a core
  int cases = 0;                 // at most so many; 0: as many as the budget allows
  int findings = 0;              // end after so many different ones; 0: go on
  bool no_faults = false;
  bool no_twin = false;       // not first with a smaller model
  bool no_reduction = false;  // exhaustive: each order, also those that differ in nothing that anybody could tell
  bool shrink = false;
  double wall_limit_s = 10;  // of one case
};

// Longer than anybody waits: until a signal comes.
inline constexpr double kEndless = 1e9;
// "90", "90s", "10m", "2h" in seconds, "endless" as kEndless. Throws BadInput.
double budget_s(const std::string& text);

// This process among those of a launcher: Open MPI's, MPICH's and Slurm's variables; {0, 1, 1} where there are none.
struct LaunchedAs {
  int rank = 0, size = 1;
  int beside = 1;  // processes of the launch on this machine
};
LaunchedAs launched_as();

// Identifies a finding: the check, and its text without numbers.
std::string finding_key(const std::string& check, const std::string& why);

}  // namespace seeksim::harness
