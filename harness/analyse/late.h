// Who came last, where nothing is stuck.
#pragma once

#include <string>

#include "harness/analyse/groups.h"

namespace seeksim::harness {

// "rank 2 came last to all_reduce #4 ..., 1.5 s after the next to last, by the ranks' own clocks."; empty where nobody
// was late by half a second or more.
std::string latest_text(const JobView& job);

}  // namespace seeksim::harness
