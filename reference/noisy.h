// Numbers of a pass through a model: plain doubles, or doubles that carry the noise of the same value in fp32. All
// loops are written once, over either.
//
// A bound that adds up the worst of every rounding is a hundred times the gradient itself after two layers, and sees
// nothing. Roundings of different operations have nothing to do with each other, though: each is a random number of
// mean 0 and at most u / sqrt(3) of the value, u being half a unit in the last place, and variances add. Noisy is a
// value and that variance, propagated to first order through every operation. Where errors do go together, as those of
// a row whose scale is off, they add up to more than that; kDeviations leaves room for it, and how much of it is used
// is measured (docs/judge.md).
#pragma once

#include <cmath>
#include <limits>
#include <type_traits>

#include "reference/number.h"
#include "reference/training.h"

namespace seeksim::reference {

inline constexpr double kDeviations = 10;                   // standard deviations that make a bound in 16 bits
inline constexpr double kVariance = kUnit * kUnit / 3;      // of one rounding to fp32, relative
inline constexpr double kTinyVariance = kTiny * kTiny / 3;  // and absolute

struct Noisy {
  double v = 0;
  double s = 0;  // variance
  Noisy() = default;
  Noisy(double value) : v(value) {}  // NOLINT: exact, as constants are
  Noisy(double value, double variance) : v(value), s(variance) {}
};

// In fp32 what a row has in common, such as the rounding of its scale, weighs more beside the roundings of its values.
inline double deviations(Type type) { return type == Type::f32 ? 10 * kDeviations : kDeviations; }

inline double value_of(double x) { return x; }
inline double value_of(const Noisy& x) { return x.v; }
inline double variance_of(double) { return 0; }
inline double variance_of(const Noisy& x) { return x.s; }
inline double bound_of(double) { return 0; }
inline double bound_of(const Noisy& x) { return kDeviations * std::sqrt(x.s); }

// v, off by a variance of s before it is rounded to fp32.
inline Noisy noisy(double v, double s, double roundings = 1) {
  return {v, s + roundings * kVariance * v * v + kTinyVariance};
}

inline Noisy operator+(const Noisy& a, const Noisy& b) { return noisy(a.v + b.v, a.s + b.s); }
inline Noisy operator-(const Noisy& a, const Noisy& b) { return noisy(a.v - b.v, a.s + b.s); }
inline double product_variance(const Noisy& a, const Noisy& b) { return a.v * a.v * b.s + b.v * b.v * a.s + a.s * b.s; }
inline Noisy operator*(const Noisy& a, const Noisy& b) { return noisy(a.v * b.v, product_variance(a, b)); }
inline Noisy operator/(const Noisy& a, const Noisy& b) {
  const double y = a.v / b.v;
  return noisy(y, (a.s + y * y * b.s) / (b.v * b.v));
}

// The value y of a function whose slope is `slope`; absolute: an error beside the roundings.
inline Noisy function(double y, double slope, const Noisy& x, double roundings, double absolute = 0) {
  return noisy(y, slope * slope * x.s + absolute * absolute, roundings);
}

inline double exp_of(double x) { return std::exp(x); }
inline Noisy exp_of(const Noisy& x) { return function(std::exp(x.v), std::exp(x.v), x, 4); }
inline double log_of(double x) { return std::log(x); }
inline Noisy log_of(const Noisy& x) { return function(std::log(x.v), 1 / x.v, x, 2); }
inline double root_of(double x) { return std::sqrt(x); }
inline Noisy root_of(const Noisy& x) { return function(std::sqrt(x.v), 0.5 / std::sqrt(x.v), x, 1); }

// GPT-2's gelu by tanh, and Llama's silu, with their slopes and the curvature of these. Their errors in fp32 are a few
// roundings, and 2^-21 of x where the exponential is large (kernels/math.h publishes them).
inline double gelu_of(double x) { return x / (1 + std::exp(-2 * std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))); }
inline double gelu_slope(double x) {
  const double k = 2 * std::sqrt(2 / M_PI), s = 1 / (1 + std::exp(-k * (x + 0.044715 * x * x * x)));
  return s + x * s * (1 - s) * k * (1 + 3 * 0.044715 * x * x);
}
inline double silu_of(double x) { return x / (1 + std::exp(-x)); }
inline double silu_slope(double x) {
  const double s = 1 / (1 + std::exp(-x));
  return s + x * s * (1 - s);
}
inline Noisy gelu_of(const Noisy& x) {
  return function(gelu_of(x.v), gelu_slope(x.v), x, 16, x.v < -1 ? 0x1p-22 * std::abs(x.v) : 0);
}
inline Noisy gelu_slope(const Noisy& x) { return function(gelu_slope(x.v), 1.2, x, 4, 0x1p-22); }
inline Noisy silu_of(const Noisy& x) {
  return function(silu_of(x.v), silu_slope(x.v), x, 16, x.v < -1 ? 0x1p-22 * std::abs(x.v) : 0);
}
inline Noisy silu_slope(const Noisy& x) { return function(silu_slope(x.v), 0.6, x, 4, 0x1p-23); }

inline double sigmoid_of(double x) { return 1 / (1 + std::exp(-x)); }
inline Noisy sigmoid_of(const Noisy& x) {
  const double s = sigmoid_of(x.v);
  return function(s, s * (1 - s), x, 8);
}

// A sum of values or products. Each addition rounds what has been added up so far.
template <class R>
struct Sum {
  double v = 0;
  void add(double x) { v += x; }
  void add(double a, double b) { v += a * b; }
  double value() const { return v; }
};
template <>
struct Sum<Noisy> {
  double v = 0, s = 0, partial = 0;
  void add(const Noisy& x) { v += x.v, s += x.s, partial += v * v; }
  void add(const Noisy& a, const Noisy& b) { v += a.v * b.v, s += product_variance(a, b), partial += v * v; }
  Noisy value() const { return {v, s + kVariance * partial + kTinyVariance}; }
};

}  // namespace seeksim::reference
