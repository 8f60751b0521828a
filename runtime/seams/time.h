// Time as every seam speaks it: signed nanoseconds since the run began, virtual in the simulator, monotonic elsewhere.
#pragma once

#include <cstdint>
#include <limits>

namespace seeksim::runtime {

using TimeNs = std::int64_t;

inline constexpr TimeNs kForever = std::numeric_limits<TimeNs>::max();
inline constexpr TimeNs kMicrosecond = 1'000;
inline constexpr TimeNs kMillisecond = 1'000'000;
inline constexpr TimeNs kSecond = 1'000'000'000;

// a + b that stays at kForever instead of wrapping.
constexpr TimeNs later(TimeNs a, TimeNs b) { return a > kForever - b ? kForever : a + b; }

// As scenarios and reports write a time.
constexpr double seconds(TimeNs ns) { return double(ns) / double(kSecond); }

}  // namespace seeksim::runtime
