// seeksim diff: where two runs part, or a run and its golden, and what led there.
#pragma once

#include <string>
#include <vector>

#include "harness/explain/diff.h"
#include "harness/report/report.h"
#include "harness/verdict/exit_status.h"

namespace seeksim::harness {

struct DiffArguments {
  std::string a, b;                    // scenario files; b empty: the golden of a, run now
  std::vector<std::string> sets;       // for both
  std::vector<std::string> sets_b;     // for b alone
  std::string schedule_a, schedule_b;  // as --schedule of run
  std::string report;                  // JSON; empty: none
  double wall_limit_s = 60;            // of one run
};

// As_expected: not a bit differs. Check_failed: something does. Throws BadInput.
ExitStatus diff_command(const DiffArguments& arguments, const Style& style);

}  // namespace seeksim::harness
