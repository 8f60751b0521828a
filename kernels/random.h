// Counter-based randomness (R7): Philox4x32-10 (Salmon et al., SC'11). A value is a pure function of
// (key = training seed, element, sample, op id, step); nothing is consumed, so ranks need not agree on an order.
#pragma once

#include <array>

#include "kernels/view.h"

namespace seeksim::kernels {

// The step that initialisation draws from: no training step reaches it, so that weights share no counter with dropout.
inline constexpr std::uint32_t kBeforeTraining = 0xffffffffU;

struct PhiloxCounter {
  std::uint32_t element = 0;
  std::uint32_t sample = 0;
  std::uint32_t op = 0;
  std::uint32_t step = 0;
};

std::array<std::uint32_t, 4> philox(PhiloxCounter counter, std::uint64_t key);

// out[i] ~ N(0, stddev^2), i counted from `first` (so any range of a tensor can be drawn alone); one Philox block gives
// four consecutive elements; normals by a written inverse-CDF sequence (F0).
void fill_normal(Lane lane, Vec<float> out, std::uint32_t op, std::uint64_t first, float stddev, std::uint64_t key);

}  // namespace seeksim::kernels
