// Why a run ended before its last step, in the words that supervisors sort by (NVRx): whose failure it is, and whether
// trying again can help.
#pragma once

#include <string>

#include "harness/verdict/checks.h"

namespace seeksim::harness {

struct StopReason {
  const char* domain = "unknown";   // workload | infrastructure | unknown
  const char* outlook = "unknown";  // cannot_recover | may_recover | unknown
};

// stopped: Judgement::stopped, not empty.
StopReason classify(const RunRecord& run, const std::string& stopped);

}  // namespace seeksim::harness
