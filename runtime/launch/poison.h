// Poison: what memory holds before anybody writes it, and what an aborted operation leaves. Neither may reach a result.
// Arithmetic on x86 and on GPUs hands a NaN's payload on, quieted, so the patterns are recognised downstream too.
#pragma once

#include <algorithm>
#include <bit>
#include <optional>
#include <stdexcept>
#include <string>
#include <type_traits>

#include "runtime/launch/any_vec.h"

namespace seeksim::runtime {

// A pattern as it comes out of arithmetic: with the quiet bit set, of either sign.
inline bool holds_poison(float value) {
  constexpr std::uint32_t kQuiet = 1u << 22, kSign = 1u << 31;
  const std::uint32_t bits = (std::bit_cast<std::uint32_t>(value) | kQuiet) & ~kSign;
  return bits == (kPoisonFresh | kQuiet) || bits == (kPoisonAborted | kQuiet);
}

// A half of a pattern that is a NaN in 16 bits; rounding to 16 bits makes another one. The other halves are numbers.
inline bool holds_poison(std::uint16_t bits) {
  return bits == std::uint16_t(kPoisonFresh >> 16) || bits == std::uint16_t(kPoisonAborted >> 16);
}

template <class T>
bool element_holds_poison(const T& value) {
  if constexpr (std::is_same_v<T, float>)
    return holds_poison(value);
  else
    return holds_poison(value.bits);
}

// The first element that holds a pattern. Blocks are looked at as wholes, without a branch: nearly always there is
// none.
inline std::optional<Index> find_poison(AnyVec values) {
  return with_float_type(values.type, [&](auto like) -> std::optional<Index> {
    using T = decltype(like);
    constexpr Index kBlock = 512;
    const kernels::OnHost<T> on_the_host = on_host(values.as<const T>());
    const kernels::Vec<const T> held = on_the_host.get();
    for (Index begin = 0; begin < held.n; begin += kBlock) {
      const Index end = std::min(begin + kBlock, held.n);
      std::uint32_t found = 0;
      for (Index i = begin; i < end; ++i) found |= std::uint32_t{element_holds_poison(held.data[i])};
      if (found == 0) continue;
      for (Index i = begin;; ++i)
        if (element_holds_poison(held.data[i])) return i;
    }
    return std::nullopt;
  });
}

// Unwritten memory reached a result: no recovery helps, so training stops, on all ranks alike.
struct UnwrittenMemory : std::runtime_error {
  using std::runtime_error::runtime_error;
};

}  // namespace seeksim::runtime
