// Conversions to and from 16-bit formats (R8): round to nearest even, canonical NaN 0x7fff, denormals kept.
#pragma once

#include "kernels/view.h"

namespace seeksim::kernels {

struct bf16 {
  std::uint16_t bits = 0;
};
struct fp16 {
  std::uint16_t bits = 0;
};

void to_bf16(Lane lane, Vec<const float> x, Vec<bf16> y);
void to_fp16(Lane lane, Vec<const float> x, Vec<fp16> y);
void from_bf16(Lane lane, Vec<const bf16> x, Vec<float> y);
void from_fp16(Lane lane, Vec<const fp16> x, Vec<float> y);

}  // namespace seeksim::kernels
