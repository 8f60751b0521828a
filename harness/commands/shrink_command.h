// seeksim shrink: the smallest scenario that fails as a given one does, and the way there.
#pragma once

#include <string>
#include <vector>

#include "harness/verdict/exit_status.h"

namespace seeksim::harness {

struct ShrinkArguments {
  std::string file;
  std::vector<std::string> sets;
  std::string check;  // that must stay red; empty: the first that is
  std::string out;    // empty: standard output, and the way there to standard error
  int runs_max = 1000;
  double wall_limit_s = 60;  // of one run
};

// Throws BadInput where the scenario cannot be run or does not fail.
ExitStatus shrink_command(const ShrinkArguments& arguments);

}  // namespace seeksim::harness
