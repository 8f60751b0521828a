// A script's run as a Chrome trace (trace-event format, JSON object form) that Perfetto and chrome://tracing open.
// Ranks are processes; steps, phases and each group's collectives are threads. Times are the machine's, from when the
// first rank began.
#pragma once

#include <string>

#include "harness/torch/run_record.h"

namespace seeksim::harness::torch {

// The whole file.
std::string trace_text(const TorchRun& run);

}  // namespace seeksim::harness::torch
