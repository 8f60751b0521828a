// A run as a picture: a Chrome trace (trace-event format, JSON object form) that Perfetto and chrome://tracing open.
// Ranks are processes, queues are threads, times are virtual.
#pragma once

#include <string>

#include "harness/record/run_record.h"
#include "harness/scenario/scenario.h"
#include "sim/timeline.h"

namespace seeksim::harness {

// The whole file. The same bytes for the same run.
std::string chrome_trace(const sim::Timeline& timeline, const Scenario& scenario, const RunRecord& run);

// One line for people: how much is in it, and what opens it.
std::string trace_summary(const sim::Timeline& timeline, const std::string& file);

}  // namespace seeksim::harness
