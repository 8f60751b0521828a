// `seeksim analyse`: what dumps or logs tell about a hang, and the same hang again on simulated ranks.
#pragma once

#include <string>
#include <vector>

#include "harness/verdict/exit_status.h"

namespace seeksim::harness {

struct AnalyseArguments {
  std::vector<std::string> paths;  // folders and files
  bool json = false;
  std::string html;       // a page; empty: none
  std::string reproduce;  // file for the scenario; empty: none
};

// Exit status 1: the simulated ranks end otherwise. Throws BadInput.
ExitStatus analyse_command(const AnalyseArguments& arguments);

}  // namespace seeksim::harness
