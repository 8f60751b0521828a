// seeksim golden: runs the undisturbed one-rank golden of scenarios, and stores it or holds it against what is stored.
#pragma once

#include <string>
#include <vector>

#include "harness/verdict/exit_status.h"

namespace seeksim::harness {

struct GoldenArguments {
  std::vector<std::string> files;
  std::vector<std::string> sets;
  bool write = false, check = false, explain = false;
};

ExitStatus golden_command(const GoldenArguments& a);

}  // namespace seeksim::harness
