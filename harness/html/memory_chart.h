// Device memory by tag over time, of the rank that holds most: stacked areas with the peak marked, and the same as
// tables.
#pragma once

#include <string>

#include "harness/html/axis.h"
#include "harness/input/json.h"
#include "sim/timeline.h"

namespace seeksim::harness::html {

// axis: the timeline's. report_peak: bytes, of the JSON report, which also counts what follows the last step. Empty
// where nothing was held.
std::string memory_figure(const sim::Timeline& timeline, const Axis& axis, const Json& report_peak);

}  // namespace seeksim::harness::html
