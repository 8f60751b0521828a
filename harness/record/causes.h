// Which fault is behind what went wrong in a run.
#pragma once

#include "harness/record/run_record.h"

namespace seeksim::harness {

// The fault behind a recovery: the latest firing before it was noticed. A rule that names one of the culprits is
// preferred. Returns the rule's number, -1 when none fits; injected_ns: when that rule fired, unchanged where none
// fits.
int fault_behind(const RunRecord& run, const Recovery& recovery, TimeNs& injected_ns);

}  // namespace seeksim::harness
