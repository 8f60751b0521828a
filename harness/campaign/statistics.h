// Means with intervals.
#pragma once

#include <cstddef>
#include <vector>

namespace seeksim::harness::campaign {

// A mean and its interval by Student's t, at 95 %: if the values are about normal, or many, 19 of 20 such intervals
// hold the true mean. One value has no interval: low and high are it.
struct Estimated {
  std::size_t n = 0;
  double mean = 0, low = 0, high = 0;
};
Estimated estimated(const std::vector<double>& values);

// The value that a t distribution exceeds with probability 0.025; to 0.5 % of its value.
double t_quantile(std::size_t degrees);

}  // namespace seeksim::harness::campaign
