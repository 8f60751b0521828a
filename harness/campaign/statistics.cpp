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

runtime::TimeNs RunLengths::edge(std::size_t of_class) {
  static const std::array<runtime::TimeNs, kClasses> kEdges = [] {
    std::array<runtime::TimeNs, kClasses> edges{};
    for (std::size_t i = 0; i < kClasses; ++i)
      edges[i] = runtime::TimeNs(std::llround(60e9 * std::exp2(double(i) / 2)));
    return edges;
  }();
  return kEdges[of_class];
}

std::size_t RunLengths::class_of(runtime::TimeNs length) {
  std::size_t i = 0;
  while (i + 1 < kClasses && edge(i) < length) ++i;
  return i;
}

void RunLengths::add(const RunLengths& more) {
  for (std::size_t i = 0; i < kClasses; ++i) {
    ended_[i] += more.ended_[i];
    went_on_[i] += more.went_on_[i];
  }
}

// Of the runs that the end of the campaign cut off within a class, half are taken to have been there for all of it.
std::vector<double> RunLengths::survival() const {
  double there = 0, share = 1;
  for (std::size_t i = 0; i < kClasses; ++i) there += double(ended_[i] + went_on_[i]);
  std::vector<double> shares;
  for (std::size_t i = 0; i < kClasses && there > 0; ++i) {
    const double at_risk = std::max(double(ended_[i]), there - double(went_on_[i]) / 2);
    if (at_risk > 0) share *= 1 - double(ended_[i]) / at_risk;
    there -= double(ended_[i] + went_on_[i]);
    shares.push_back(share);
  }
  return shares;
}

RunLengths RunLengths::from(const std::vector<std::int64_t>& ended, const std::vector<std::int64_t>& went_on) {
  RunLengths lengths;
  std::copy_n(ended.begin(), std::min(ended.size(), kClasses), lengths.ended_.begin());
  std::copy_n(went_on.begin(), std::min(went_on.size(), kClasses), lengths.went_on_.begin());
  return lengths;
}

}  // namespace seeksim::harness::campaign
