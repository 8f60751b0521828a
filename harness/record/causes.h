// Which fault is behind what went wrong in a run.
#pragma once

#include "harness/record/run_record.h"

namespace seeksim::harness {

// The fault behind a recovery: the latest firing before it was noticed. A rule that names one of the culprits is
// preferred.
struct Cause {
  int fault = -1;           // the rule's number; -1: none fits
  TimeNs injected_ns = -1;  // when that rule fired
};
// For each recovery of the run.
std::vector<Cause> causes_of(const RunRecord& run);

}  // namespace seeksim::harness
