// `seeksim runs`: the runs that a folder keeps, and two of them side by side.
#pragma once

#include <string>
#include <vector>

#include "harness/report/report.h"
#include "harness/verdict/exit_status.h"

namespace seeksim::harness {

struct RunsArguments {
  std::vector<std::string> folders;
  bool json = false;
};

// A line a run: verdict, steps, loss, weights, and what was changed since the one before it in the same folder. Throws
// BadInput.
ExitStatus runs_command(const RunsArguments& arguments, const Style& style);

// `seeksim diff` of two kept runs. report: a file for it as JSON; empty: none. Exit status 1: their results differ.
ExitStatus diff_kept_runs(const std::string& a, const std::string& b, const std::string& report, const Style& style);

}  // namespace seeksim::harness
