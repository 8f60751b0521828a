// Files of right answers: a line each, fields between ';', lists between '|' or ','.
#pragma once

#include <sstream>
#include <string>
#include <vector>

#include "tests/support/paths.h"

namespace seeksim::harness::testing {

inline const std::string kHere = paths::source_dir() + "/tests/harness/analyse";

inline std::string trimmed(const std::string& text) {
  const std::size_t from = text.find_first_not_of(' '), to = text.find_last_not_of(' ');
  return from == std::string::npos ? "" : text.substr(from, to - from + 1);
}

// Trimmed parts.
inline std::vector<std::string> split(const std::string& text, char by) {
  std::vector<std::string> parts;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, by);) parts.push_back(trimmed(part));
  return parts;
}

}  // namespace seeksim::harness::testing
