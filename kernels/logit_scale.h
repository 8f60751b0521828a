// A scalar parameter that multiplies the logits, and its gradient. The gradient is a bias's: a dot product a row (F4
// inside each of 8 fixed vocabulary segments, then F3 over them, as every row sum over the vocabulary), then the sum
// over rows that bias_grad makes of them (F2 over 8 token segments of a sample, then F3 over samples).
#pragma once

#include "kernels/view.h"

namespace seeksim::kernels {

// logits (R, V) = raw * scale[0].
void logit_scale_forward(Lane lane, Mat<const float> raw, Vec<const float> scale, Mat<float> logits);

// dots (R): sum over the vocabulary of dlogits * raw. Then dlogits (R, V) *= scale[0], in place: the gradient of raw.
// segment: of the vocabulary, where the columns are a slice of it that begins with a segment and is not empty; `dots`
// is then the tree node over the slice's segments (add_ways in slabs.h). 0: the columns are the whole vocabulary.
void logit_scale_backward(Lane lane, Mat<const float> raw, Vec<const float> scale, Mat<float> dlogits, Vec<float> dots,
                          Index segment = 0);

}  // namespace seeksim::kernels
