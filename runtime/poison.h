// Poison: what memory holds before anybody writes it, and what an aborted operation leaves. Neither may reach a result.
// Arithmetic on x86 and on GPUs hands a NaN's payload on, quieted, so the patterns are recognised downstream too.
#pragma once

#include <bit>
#include <optional>
#include <stdexcept>
#include <string>

#include "runtime/buffer.h"

namespace seeksim::runtime {

// A pattern as it comes out of arithmetic: with the quiet bit set, of either sign.
inline bool holds_poison(float value) {
  constexpr std::uint32_t kQuiet = 1u << 22, kSign = 1u << 31;
  const std::uint32_t bits = (std::bit_cast<std::uint32_t>(value) | kQuiet) & ~kSign;
  return bits == (kPoisonFresh | kQuiet) || bits == (kPoisonAborted | kQuiet);
}

// The first element that holds a pattern.
inline std::optional<Index> find_poison(kernels::Vec<const float> values) {
  for (Index i = 0; i < values.n; ++i) {
    if (holds_poison(values.data[i])) return i;
  }
  return std::nullopt;
}

// Memory that nobody wrote reached a result: no recovery helps, so training stops, on all ranks alike.
struct UnwrittenMemory : std::runtime_error {
  using std::runtime_error::runtime_error;
};

}  // namespace seeksim::runtime
