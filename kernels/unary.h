// The functions of math.h on whole arrays, for tests that sweep them and for any elementwise use.
#pragma once

#include "kernels/view.h"

namespace seeksim::kernels {

enum class Unary { exp, tanh, log, inverse_sqrt, gelu, gelu_grad, silu, silu_grad };

// y[i] = f(x[i]). y may be x.
void unary(Lane lane, Unary f, Vec<const float> x, Vec<float> y);

}  // namespace seeksim::kernels
