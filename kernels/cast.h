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

// The storage types of tensors, T in the headers of this folder: float, and these two. T names how an array is stored,
// never how one computes: a value is widened exactly when it is read, arithmetic is fp32, and a result is rounded once,
// when it is written.

// y = x rounded to T, x widened from T: bf16 or fp16; with float, a copy.
template <class T>
void narrow(Lane lane, Vec<const float> x, OutVec<T> y);
template <class T>
void widen(Lane lane, InVec<T> x, Vec<float> y);

// x = x rounded to T and widened again, in place: for a gradient that is rounded at the root (R4).
template <class T>
void round_through(Lane lane, Vec<float> x);

}  // namespace seeksim::kernels
