// Elementwise operations (F0) on whole arrays. Where there is a T, tensors are stored as T (float, bf16, fp16).
#pragma once

#include "kernels/view.h"

namespace seeksim::kernels {

// GELU in GPT-2's tanh form, y = gelu(x), and its gradient dx = dy * gelu'(x).
template <class T = float>
void gelu_forward(Lane lane, InMat<T> x, OutMat<T> y);
template <class T = float>
void gelu_backward(Lane lane, InMat<T> dy, InMat<T> x, OutMat<T> dx);

// y = a + b. y may be a or b.
template <class T = float>
void add(Lane lane, InMat<T> a, InMat<T> b, OutMat<T> y);

// The functions of math.h on whole arrays, for tests that sweep them and for any elementwise use.
enum class Unary { exp, tanh, log, inverse_sqrt, gelu, gelu_grad, silu, silu_grad };
// y[i] = f(x[i]). y may be x.
void unary(Lane lane, Unary f, Vec<const float> x, Vec<float> y);

// x *= factor.
void scale(Lane lane, Vec<float> x, float factor);

// x = value, by bit pattern (a sentinel may be a NaN).
void fill_bits(Lane lane, Vec<float> x, std::uint32_t bits);

// y = x, bit for bit.
template <class T = float>
void copy(Lane lane, InVec<T> x, OutVec<T> y);

// Where gradients come late: to[i] = come[i], or 0 where nothing comes (come is empty); but NaN where to[i] is not
// finite, so that a step whose own gradient is not finite is skipped, whatever it would apply. Computes on the CPU
// only.
void replace_finite(Lane lane, Vec<const float> come, Vec<float> to);

// rest = rest - sum * share. Computes on the CPU only.
void take_share(Lane lane, Vec<const float> sum, float share, Vec<float> rest);

}  // namespace seeksim::kernels
