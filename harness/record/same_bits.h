// When two numbers of two runs are the same: by bits, so that -0 is not +0; but a NaN is a NaN, whose payload and sign
// are outside the contract (docs/numerics.md#r9) and differ between processors.
#pragma once

#include <bit>
#include <cstdint>

namespace seeksim::harness {

inline bool same_bits(float a, float b) {
  if (a != a || b != b) return a != a && b != b;
  return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b);
}

}  // namespace seeksim::harness
