// Arithmetic on numbers from outside: nothing wraps, and nothing is undefined.
#pragma once

#include <cstdint>
#include <optional>

#include "runtime/seams/time.h"

namespace seeksim::runtime {

// A duration or a time in nanoseconds, towards zero. Stays at kForever where it does not fit, -kForever likewise; what
// is no number lasts for ever.
constexpr TimeNs to_time_ns(double ns) {
  constexpr double kEnd = 9223372036854775808.0;  // 2^63
  if (ns > -kEnd && ns < kEnd) return TimeNs(ns);
  return ns <= -kEnd ? -kForever : kForever;
}

// t + by, either of any sign, that stays at kForever or -kForever.
constexpr TimeNs shifted(TimeNs t, TimeNs by) {
  TimeNs result = 0;
  if (__builtin_add_overflow(t, by, &result) || result < -kForever) return by < 0 ? -kForever : kForever;
  return result;
}

// a * b and a + b; none where they do not fit.
constexpr std::optional<std::uint64_t> product(std::uint64_t a, std::uint64_t b) {
  std::uint64_t result = 0;
  if (__builtin_mul_overflow(a, b, &result)) return std::nullopt;
  return result;
}
constexpr std::optional<std::uint64_t> sum(std::uint64_t a, std::uint64_t b) {
  std::uint64_t result = 0;
  if (__builtin_add_overflow(a, b, &result)) return std::nullopt;
  return result;
}

}  // namespace seeksim::runtime
