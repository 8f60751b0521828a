// One element of dropout, as dropout.h says it.
#pragma once

#include "kernels/dropout.h"
#include "kernels/random.h"
#include "tests/kernels/reference.h"

namespace seeksim::kernels::test {

inline float dropped(const Dropout& drop, std::size_t sample, std::size_t element, float x) {
  const auto block = static_cast<std::uint32_t>(element / 64 * 16 + element % 16);
  const auto words =
      philox({block, drop.first_sample + static_cast<std::uint32_t>(sample), drop.op, drop.step}, drop.key);
  const std::uint32_t upper = words[element % 64 / 16] >> 8;
  return upper >= drop.threshold ? x * drop.factor : 0.0F;
}

// Keeps the upper 24 bits that are at least `rate`.
inline Dropout some_dropout(double rate, std::uint32_t op = 3) {
  Dropout drop = dropout_of(rate);
  drop.key = 0x123456789abcdef0;
  drop.op = op, drop.step = 7, drop.first_sample = 5;
  return drop;
}

}  // namespace seeksim::kernels::test
