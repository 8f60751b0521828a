// Distributions of durations, drawn by a number in [0, 1): the same number gives the same duration on every machine.
#pragma once

#include <cstdint>
#include <string>

namespace seeksim::harness::campaign {

struct Distribution {
  enum class Kind : std::uint8_t { fixed, exponential, weibull, log_normal, uniform, count_ } kind = Kind::fixed;
  double mean = 0;             // of all kinds but uniform
  double shape = 1;            // weibull
  double sigma = 1;            // log_normal
  double least = 0, most = 0;  // uniform

  static Distribution of(double value) {
    Distribution d;
    d.mean = value;
    return d;
  }
  // The value below which the share `u` of all draws lies; 0 <= u < 1. Not negative.
  double at(double u) const;
  // Of all draws.
  double average() const { return kind == Kind::uniform ? (least + most) / 2 : mean; }
  friend bool operator==(const Distribution&, const Distribution&) = default;
};
const char* name(Distribution::Kind kind);

// The value below which the share `u` of a standard normal distribution lies, 0 < u < 1; to 2e-9 of its value or
// better.
double normal_quantile(double u);
// Gamma function, x > 0; to 1e-13 of its value.
double gamma_function(double x);

}  // namespace seeksim::harness::campaign
