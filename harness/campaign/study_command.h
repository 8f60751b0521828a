// seeksim study: campaigns of thousands of hours, and which policy loses least.
#pragma once

#include <string>
#include <vector>

#include "harness/report/report.h"

namespace seeksim::harness {

struct StudyArguments {
  std::string file;
  std::vector<std::string> sets;
  std::string csv;       // empty: none
  std::string json;      // empty: none
  std::string pictures;  // a folder; empty: none
  std::string html;      // a page; empty: none
  int processes = 0;     // 0: one a core
};

// As_expected: all time adds up, and published figures are met. Throws BadInput with all problems.
ExitStatus study_command(const StudyArguments& arguments, const Style& style);

}  // namespace seeksim::harness
