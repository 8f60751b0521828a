// Layer normalisation, forward and backward. Row sums are F4; parameter gradients are F2 over 8 token segments of a
// sample, then F3 over the samples of an aligned block.
#pragma once

#include "kernels/view.h"

namespace seeksim::kernels {

// y (R, C) = (x - mean) * rstd * gamma + beta; mean, rstd (R) are kept for backward. Variance is the biased one.
void layer_norm_forward(Lane lane, Mat<const float> x, Vec<const float> gamma, Vec<const float> beta, float eps,
                        Mat<float> y, Vec<float> mean, Vec<float> rstd);

// dx (R, C) = gradient for x. When `residual` has data, dx = residual + gradient (the skip connection's share, one
// add).
void layer_norm_backward(Lane lane, Mat<const float> dy, Mat<const float> x, Vec<const float> gamma,
                         Vec<const float> mean, Vec<const float> rstd, Mat<const float> residual, Mat<float> dx);

// dgamma, dbeta (C): the tree node of R / tokens consecutive samples of `tokens` rows each.
void layer_norm_param_grad(Lane lane, Mat<const float> dy, Mat<const float> x, Vec<const float> mean,
                           Vec<const float> rstd, Index tokens, Vec<float> dgamma, Vec<float> dbeta);

// db (N): the same sum over plain rows (the gradient of a linear layer's bias).
void bias_grad(Lane lane, Mat<const float> dy, Index tokens, Vec<float> db);

}  // namespace seeksim::kernels
