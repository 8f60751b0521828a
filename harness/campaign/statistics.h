// Means with intervals, and how long runs last.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/seams/time.h"

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

// How long a job runs from one unplanned stop to the next: counted in classes of lengths, each reaching up to the root
// of two times as far as the one before.
class RunLengths {
 public:
  static constexpr std::size_t kClasses = 44;  // the first up to a minute, the last beyond four years
  // Where a class ends.
  static runtime::TimeNs edge(std::size_t of_class);
  void ended(runtime::TimeNs length) { ++ended_[class_of(length)]; }
  // The campaign ended, and the run had not.
  void went_on(runtime::TimeNs length) { ++went_on_[class_of(length)]; }
  void add(const RunLengths& more);
  // The share of runs that last to the edge of each class, as a life table has it; up to the last class with a run.
  std::vector<double> survival() const;

  using Counts = std::array<std::int64_t, kClasses>;
  const Counts& ended() const { return ended_; }
  const Counts& went_on() const { return went_on_; }
  // From counts by class, at most kClasses of each.
  static RunLengths from(const std::vector<std::int64_t>& ended, const std::vector<std::int64_t>& went_on);
  friend bool operator==(const RunLengths&, const RunLengths&) = default;

 private:
  static std::size_t class_of(runtime::TimeNs length);
  Counts ended_{}, went_on_{};
};

}  // namespace seeksim::harness::campaign
