// `seeksim analyse`: dumps of flight recorders, or logs, and what they tell.
#pragma once

#include <string>
#include <vector>

namespace seeksim::harness {

struct AnalyseArguments {
  std::vector<std::string> paths;  // folders and files
  bool json = false;
};

// Text for people, or JSON. Throws BadInput.
std::string analyse(const AnalyseArguments& arguments);

}  // namespace seeksim::harness
