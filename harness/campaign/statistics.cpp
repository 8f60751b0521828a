#include "harness/campaign/statistics.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numeric>

namespace seeksim::harness::campaign {

double t_quantile(std::size_t degrees) {
  constexpr double kFew[] = {0, 12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262};
  if (degrees < std::size(kFew)) return kFew[degrees];
  const double n = double(degrees);
  return 1.95996 + 2.3722 / n + 2.8225 / (n * n);  // Cornish and Fisher's expansion
}

Estimated estimated(const std::vector<double>& values) {
  Estimated e;
  e.n = values.size();
  if (values.empty()) return e;
  e.mean = std::accumulate(values.begin(), values.end(), 0.0) / double(e.n);
  e.low = e.high = e.mean;
  if (e.n < 2) return e;
  double squares = 0;
  for (const double value : values) squares += (value - e.mean) * (value - e.mean);
  const double half = t_quantile(e.n - 1) * std::sqrt(squares / double(e.n - 1) / double(e.n));
  e.low -= half;
  e.high += half;
  return e;
}

}  // namespace seeksim::harness::campaign
