// Layer normalisation, forward and backward. Row sums are F4; parameter gradients are F2 over 8 token segments of a
// sample, then F3 over the samples of an aligned block. Rows, gamma, beta and their gradients for x are stored as T
// (float, bf16, fp16); means, rstd and parameter gradients are floats.
#pragma once

#include "kernels/view.h"

namespace seeksim::kernels {

// y (R, C) = (x - mean) * rstd * gamma + beta; mean, rstd (R) are kept for backward. Variance is the biased one.
template <class T = float>
void layer_norm_forward(Lane lane, InMat<T> x, InVec<T> gamma, InVec<T> beta, float eps, OutMat<T> y, Vec<float> mean,
                        Vec<float> rstd);

// dx (R, C) = gradient for x. When `residual` has data, dx = residual + gradient (the skip connection's share, one
// add).
template <class T = float>
void layer_norm_backward(Lane lane, InMat<T> dy, InMat<T> x, InVec<T> gamma, Vec<const float> mean,
                         Vec<const float> rstd, InMat<T> residual, OutMat<T> dx);

// dgamma, dbeta (C): the tree node of R / tokens consecutive samples of `tokens` rows each.
template <class T = float>
void layer_norm_param_grad(Lane lane, InMat<T> dy, InMat<T> x, Vec<const float> mean, Vec<const float> rstd,
                           Index tokens, Vec<float> dgamma, Vec<float> dbeta);

// db (N): the same sum over plain rows (the gradient of a linear layer's bias).
template <class T = float>
void bias_grad(Lane lane, InMat<T> dy, Index tokens, Vec<float> db);

// The same for a stretch of `tokens` tokens of each sample that begins with a segment, in segments of `segment`
// (slab_size of all tokens). Row s of dgamma, dbeta, db (samples, C) is the node over that stretch's segments in sample
// s alone, because segments of other stretches are added before other samples are. add_samples (slabs.h) does both.
template <class T = float>
void layer_norm_sample_grads(Lane lane, InMat<T> dy, InMat<T> x, Vec<const float> mean, Vec<const float> rstd,
                             Index tokens, Index segment, Mat<float> dgamma, Mat<float> dbeta);
template <class T = float>
void bias_sample_grads(Lane lane, InMat<T> dy, Index tokens, Index segment, Mat<float> db);

}  // namespace seeksim::kernels
