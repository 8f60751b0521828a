// RMS norm, forward and backward: layer norm without mean and bias. Row sums are F4; the gradient of gamma is F2 over 8
// token segments of a sample, then F3 over the samples of an aligned block. Rows, gamma and the gradient for x are
// stored as T (float, bf16, fp16); rstd and the gradient of gamma are floats.
#pragma once

#include "kernels/view.h"

namespace seeksim::kernels {

// y (R, C) = x * rstd * gamma, rstd = 1 / sqrt(sum(x^2) / C + eps); rstd (R) is kept for backward.
template <class T = float>
void rms_norm_forward(Lane lane, InMat<T> x, InVec<T> gamma, float eps, OutMat<T> y, Vec<float> rstd);

// dx (R, C) = gradient for x. When `residual` has data, dx = residual + gradient (the skip connection's share, one
// add).
template <class T = float>
void rms_norm_backward(Lane lane, InMat<T> dy, InMat<T> x, InVec<T> gamma, Vec<const float> rstd, InMat<T> residual,
                       OutMat<T> dx);

// dgamma (C): the tree node of R / tokens consecutive samples of `tokens` rows each.
template <class T = float>
void rms_norm_param_grad(Lane lane, InMat<T> dy, InMat<T> x, Vec<const float> rstd, Index tokens, Vec<float> dgamma);

// The same for a stretch of tokens of each sample, as in layer_norm_sample_grads: row s of dgamma (samples, C) is the
// node over that stretch's segments in sample s alone.
template <class T = float>
void rms_norm_sample_grads(Lane lane, InMat<T> dy, InMat<T> x, Vec<const float> rstd, Index tokens, Index segment,
                           Mat<float> dgamma);

}  // namespace seeksim::kernels
