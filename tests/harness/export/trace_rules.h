// The rules of the trace-event format as Perfetto and chrome://tracing read it, and those of what is drawn here.
#pragma once

#include <cstdint>
#include <string>

#include <nlohmann/json.hpp>

#include "harness/input/json.h"

namespace seeksim::harness::testing {

// A time of a trace, in ns.
std::int64_t ns(const Json& microseconds);

// What is wrong with a trace, the first thing; empty: nothing.
std::string wrong_with_trace(const Json& trace);

}  // namespace seeksim::harness::testing
