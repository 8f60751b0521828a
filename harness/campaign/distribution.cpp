// No function of libm decides a time: its last bit changes with the machine, and a seed shall not.
#include "harness/campaign/distribution.h"

#include <algorithm>
#include <array>

#include "runtime/rules/host_math.h"

namespace seeksim::harness::campaign {
namespace {

using runtime::host_exp;
using runtime::host_log;
using runtime::host_sqrt;

double power(double base, double exponent) {
  if (base <= 0) return 0;
  return host_exp(std::clamp(exponent * host_log(base), -700.0, 700.0));
}

// -ln(1 - u): exponential with mean 1.
double exponential(double u) { return -host_log(1 - u); }

constexpr double kPi = 3.14159265358979323846;

}  // namespace

const char* name(Distribution::Kind kind) {
  constexpr const char* kNames[] = {"fixed", "exponential", "weibull", "log_normal", "uniform"};
  return kNames[int(kind)];
}

// Lanczos' approximation with g = 7 and nine terms.
double gamma_function(double x) {
  constexpr std::array<double, 9> kTerms = {0.99999999999980993,  676.5203681218851,     -1259.1392167224028,
                                            771.32342877765313,   -176.61502916214059,   12.507343278686905,
                                            -0.13857109526572012, 9.9843695780195716e-6, 1.5056327351493116e-7};
  if (x < 0.5) return gamma_function(x + 1) / x;
  const double at = x - 1;
  double sum = kTerms[0];
  for (std::size_t i = 1; i < kTerms.size(); ++i) sum += kTerms[i] / (at + double(i));
  const double t = at + 7.5;
  return host_sqrt(2 * kPi) * power(t, at + 0.5) * host_exp(-t) * sum;
}

// Acklam's rational approximation of the inverse of the normal distribution, in three parts.
double normal_quantile(double u) {
  constexpr double a[] = {-3.969683028665376e+01, 2.209460984245205e+02,  -2.759285104469687e+02,
                          1.383577518672690e+02,  -3.066479806614716e+01, 2.506628277459239e+00};
  constexpr double b[] = {-5.447609879822406e+01, 1.615858368580409e+02, -1.556989798598866e+02, 6.680131188771972e+01,
                          -1.328068155288572e+01};
  constexpr double c[] = {-7.784894002430293e-03, -3.223964580411365e-01, -2.400758277161838e+00,
                          -2.549732539343734e+00, 4.374664141464968e+00,  2.938163982698783e+00};
  constexpr double d[] = {7.784695709041462e-03, 3.224671290700398e-01, 2.445134137142996e+00, 3.754408661907416e+00};
  constexpr double kTail = 0.02425;
  if (u < kTail || u > 1 - kTail) {
    const double tail = std::max(1e-300, u < kTail ? u : 1 - u);
    const double q = host_sqrt(-2 * host_log(tail));
    const double x = (((((c[0] * q + c[1]) * q + c[2]) * q + c[3]) * q + c[4]) * q + c[5]) /
                     ((((d[0] * q + d[1]) * q + d[2]) * q + d[3]) * q + 1);
    return u < kTail ? x : -x;
  }
  const double q = u - 0.5, r = q * q;
  return (((((a[0] * r + a[1]) * r + a[2]) * r + a[3]) * r + a[4]) * r + a[5]) * q /
         (((((b[0] * r + b[1]) * r + b[2]) * r + b[3]) * r + b[4]) * r + 1);
}

double Distribution::at(double u) const {
  switch (kind) {
    case Kind::exponential:
      return mean * exponential(u);
    case Kind::weibull:
      return mean / gamma_function(1 + 1 / shape) * power(exponential(u), 1 / shape);
    case Kind::log_normal:
      // Its mean is its median times e^(sigma^2 / 2).
      return mean *
             host_exp(std::clamp(sigma * normal_quantile(std::max(u, 0x1p-54)) - sigma * sigma / 2, -700.0, 700.0));
    case Kind::uniform:
      return least + (most - least) * u;
    default:
      return mean;
  }
}

}  // namespace seeksim::harness::campaign
