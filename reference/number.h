// A number and how far it may be off where it is computed in fp32: a program that does so, in any order of its sums,
// gets something in [v - e, v + e]. Each operation takes over what its operands may be off by and adds one rounding; a
// sum adds its depth times a rounding of the sum of absolute values. For short chains of operations, such as an
// optimizer's step, where the worst of all roundings together is still next to nothing. What doubles themselves round
// is 2^-29 of that.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

namespace seeksim::reference {

inline constexpr double kUnit = 0x1p-24;   // one rounding to fp32, relative
inline constexpr double kTiny = 0x1p-150;  // and where it is denormal

struct Bounded {
  double v = 0;
  double e = 0;
  Bounded() = default;
  Bounded(double value) : v(value) {}  // NOLINT: exact, as constants are
  Bounded(double value, double bound) : v(value), e(bound) {}
};

// v, off by e before it is rounded to fp32. An exact 0 stays one.
inline Bounded rounded(double v, double e) {
  if (v == 0 && e == 0) return {};
  return {v, e + kUnit * (std::abs(v) + e) + kTiny};
}

inline Bounded operator+(const Bounded& a, const Bounded& b) { return rounded(a.v + b.v, a.e + b.e); }
inline Bounded operator-(const Bounded& a, const Bounded& b) { return rounded(a.v - b.v, a.e + b.e); }
inline Bounded operator*(const Bounded& a, const Bounded& b) {
  return rounded(a.v * b.v, std::abs(a.v) * b.e + std::abs(b.v) * a.e + a.e * b.e);
}
inline Bounded operator/(const Bounded& a, const Bounded& b) {
  const double least = std::abs(b.v) - b.e;
  const double bound = least > 0 ? (a.e + std::abs(a.v / b.v) * b.e) / least : std::numeric_limits<double>::infinity();
  return rounded(a.v / b.v, bound);
}
inline Bounded root_of(const Bounded& x) {
  const double y = std::sqrt(x.v), least = std::max(0.0, x.v - x.e);
  return rounded(y, std::max(y - std::sqrt(least), std::sqrt(x.v + x.e) - y));
}
// A sum whose terms have these absolute values together; depth: additions between a term and the result.
inline Bounded sum_of(double v, double absolute, double depth) { return {v, (depth + 1) * (kUnit * absolute + kTiny)}; }

}  // namespace seeksim::reference
