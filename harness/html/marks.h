// The moments of a report that a timeline marks: faults, detection, agreement, rebuild, resume, new starts of the job.
#pragma once

#include <string>
#include <vector>

#include "harness/input/json.h"

namespace seeksim::harness::html {

struct Mark {
  double at_s = 0;
  std::string at;    // as the JSON report has it
  std::string kind;  // its class: fault, detected, agreed, rebuilt, resumed, restart
  std::string text;  // plain
};

// In the order of time; at equal times in the order of the story.
std::vector<Mark> marks_of(const Json& report);

}  // namespace seeksim::harness::html
