// A scalar parameter that multiplies the logits, and its gradient. The gradient is made like a bias's: a dot product a
// row (F4 inside each of 8 fixed vocabulary segments, then F3 over them, like every row sum over the vocabulary), then
// bias_grad's sum over rows (F2 over 8 token segments of a sample, then F3 over samples).
#pragma once

#include "kernels/view.h"

namespace seeksim::kernels {

// logits (R, V) = raw * scale[0].
void logit_scale_forward(Lane lane, Mat<const float> raw, Vec<const float> scale, Mat<float> logits);

// dots (R): sum over the vocabulary of dlogits * raw. Then dlogits (R, V) *= scale[0], in place: the gradient of raw.
// segment: 0 if the columns are the whole vocabulary. Else its segment size; the columns are then a slice that begins
// with a segment and is not empty, and `dots` is the tree node over the slice's segments (add_ways in slabs.h).
void logit_scale_backward(Lane lane, Mat<const float> raw, Vec<const float> scale, Mat<float> dlogits, Vec<float> dots,
                          Index segment = 0);

}  // namespace seeksim::kernels
