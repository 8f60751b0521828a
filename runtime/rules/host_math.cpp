// Series short enough to be checked by eye: argument reduced until a dozen terms reach the last bit, summed from the
// smallest term up. Every operation is one correctly rounded IEEE operation, so that the bits are the same everywhere.
#include "runtime/rules/host_math.h"

#include <bit>
#include <cstdint>

#include "kernels/check.h"

namespace seeksim::runtime {
namespace {

// ln 2 in two parts: the high one has 21 zero bits at its end, so that its product with an exponent is exact.
constexpr double kLn2High = 0x1.62e42fee00000p-1;
constexpr double kLn2Low = 0x1.a39ef35793c76p-33;

}  // namespace

double host_log(double x) {
  SEEKSIM_CHECK(x >= 2.3e-308 && x <= 1.7e308, "host_log(%g): out of its range", x);
  // x = m * 2^e with m in [sqrt(1/2), sqrt(2)).
  const auto bits = std::bit_cast<std::uint64_t>(x);
  int e = static_cast<int>(bits >> 52) - 1023;
  double m = std::bit_cast<double>((bits & 0x000fffffffffffffu) | 0x3ff0000000000000u);
  if (m > 1.4142135623730951) {
    m *= 0.5;
    ++e;
  }
  // log(m) = 2 artanh(s) = 2 (s + s^3/3 + s^5/5 + ...), |s| <= 0.172: the 23rd power is below 2^-53.
  const double s = (m - 1.0) / (m + 1.0);
  const double s2 = s * s;
  double sum = 0;
  for (int k = 23; k >= 3; k -= 2) sum = (sum + 1.0 / k) * s2;
  const double log_m = 2.0 * s + 2.0 * s * sum;
  return e * kLn2High + (log_m + e * kLn2Low);
}

namespace {

constexpr double kPi = 3.14159265358979323846;

// sin and cos of a in [0, pi/4 + 2^-20] by Taylor's series; the terms left out are below 2^-56.
double small_sin(double a) {
  const double a2 = a * a;
  double sum = 1.0;
  for (int k = 18; k >= 2; k -= 2) sum = 1.0 - sum * a2 / (k * (k + 1.0));
  return a * sum;
}

double small_cos(double a) {
  const double a2 = a * a;
  double sum = 1.0;
  for (int k = 17; k >= 1; k -= 2) sum = 1.0 - sum * a2 / (k * (k + 1.0));
  return sum;
}

}  // namespace

double host_cos_pi(double x) {
  SEEKSIM_CHECK(x >= 0 && x <= 1, "host_cos_pi(%g): out of its range", x);
  if (x > 0.5) return -host_cos_pi(1.0 - x);  // 1 - x is exact here
  if (x > 0.25) return small_sin((0.5 - x) * kPi);
  return small_cos(x * kPi);
}

double host_exp(double x) {
  SEEKSIM_CHECK(x >= -700 && x <= 700, "host_exp(%g): out of its range", x);
  // x = n ln 2 + r, |r| <= ln 2 / 2; e^r by Taylor's series to the power 13: what is left out is below 2^-55.
  const int n = static_cast<int>(x * 1.4426950408889634 + (x < 0 ? -0.5 : 0.5));
  const double r = (x - n * kLn2High) - n * kLn2Low;
  double sum = 1.0;
  for (int k = 13; k >= 1; --k) sum = 1.0 + sum * r / k;
  return sum * std::bit_cast<double>(static_cast<std::uint64_t>(n + 1023) << 52);
}

SinCos host_sin_cos(double angle) {
  SEEKSIM_CHECK(angle >= 0 && angle <= 0x1p26, "host_sin_cos(%g): out of its range", angle);
  // Whole quarter turns are taken off. Three parts of pi / 2, the first two of 26 bits each, so that their products
  // with a quarter's number are exact.
  const auto quarter = static_cast<std::int64_t>(angle / (kPi / 2) + 0.5);
  const double n = static_cast<double>(quarter);
  const double a = ((angle - n * 0x1.921fb5p+0) - n * 0x1.110b46p-26) - n * 0x1.1a62633145c07p-54;
  const double magnitude = a < 0 ? -a : a;
  const double sin = a < 0 ? -small_sin(magnitude) : small_sin(magnitude), cos = small_cos(magnitude);
  switch (quarter & 3) {
    case 0:
      return {sin, cos};
    case 1:
      return {cos, -sin};
    case 2:
      return {-sin, -cos};
    default:
      return {-cos, sin};
  }
}

double host_sqrt(double x) { return __builtin_sqrt(x); }
float host_sqrt(float x) { return __builtin_sqrtf(x); }

bool host_finite(float x) { return (std::bit_cast<std::uint32_t>(x) & 0x7f800000u) != 0x7f800000u; }

}  // namespace seeksim::runtime
