// What the doctor says, as one text a test can search.
#pragma once

#include <string>
#include <vector>

#include "harness/doctor/lint.h"

namespace seeksim::harness {

// One line an advice: its weight and its problem.
inline std::string text_of(const std::vector<Advice>& advice) {
  std::string all;
  for (const Advice& one : advice) all += std::string(name(one.weight)) + " " + one.problem.text() + "\n";
  return all;
}

}  // namespace seeksim::harness
