// Elementwise operations (F0) on whole arrays.
#pragma once

#include "kernels/view.h"

namespace seeksim::kernels {

// GELU in GPT-2's tanh form, y = gelu(x), and its gradient dx = dy * gelu'(x).
void gelu_forward(Lane lane, Mat<const float> x, Mat<float> y);
void gelu_backward(Lane lane, Mat<const float> dy, Mat<const float> x, Mat<float> dx);

// y = a + b. y may be a or b.
void add(Lane lane, Mat<const float> a, Mat<const float> b, Mat<float> y);

// x *= factor.
void scale(Lane lane, Vec<float> x, float factor);

// x = value, by bit pattern (a sentinel may be a NaN).
void fill_bits(Lane lane, Vec<float> x, std::uint32_t bits);

// y = x.
void copy(Lane lane, Vec<const float> x, Vec<float> y);

}  // namespace seeksim::kernels
