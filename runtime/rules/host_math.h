// The few functions of real numbers that the host needs (learning rates, bias corrections): written out, because those
// of libm change their last bit with the machine, and a learning rate decides every weight (docs/numerics.md#r6).
#pragma once

namespace seeksim::runtime {

// Natural logarithm of x > 0, within 2 ulp.
double host_log(double x);
// e^x for -700 <= x <= 700, within 2 ulp.
double host_exp(double x);
struct SinCos {
  double sin = 0;
  double cos = 1;
};
// For 0 <= angle <= 2^26 radians; within 2^-50 of the true values for that double.
SinCos host_sin_cos(double angle);
// cos(pi * x) for 0 <= x <= 1, within 2 ulp of the larger of it and 0.7; exact at 0, 1/2 and 1.
double host_cos_pi(double x);
// Correctly rounded by IEEE 754.
double host_sqrt(double x);
float host_sqrt(float x);
bool host_finite(float x);

}  // namespace seeksim::runtime
