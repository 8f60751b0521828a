// Rotary positions: q and k of each head are turned by angles that grow with the position, in place. Element i of a
// head's first half is paired with element i of its second half (as Hugging Face's Llama does).
#pragma once

#include "kernels/attention.h"
#include "kernels/view.h"

namespace seeksim::kernels {

// qkv as in attention.h: the query and key columns of each key head are turned, v stays. angles (T, D): row t holds the
// cosines of position t's D / 2 angles, then their sines. For the pair (a, b):
//   a' = fma(a, cos, -(b * sin));  b' = fma(b, cos, a * sin).
template <class T = float>
void rotary_forward(Lane lane, AttentionShape shape, Mat<const float> angles, OutMat<T> qkv);

// The gradient of the above: the same with -sin.
template <class T = float>
void rotary_backward(Lane lane, AttentionShape shape, Mat<const float> angles, OutMat<T> dqkv);

}  // namespace seeksim::kernels
