#include "harness/campaign/stretch.h"

#include <algorithm>
#include <utility>

namespace seeksim::harness::campaign {

Stretch::Stretch(TimeNs begin, std::int64_t first, TimeNs step_ns, std::vector<Stop> stops)
    : begin_(begin), first_(first), step_ns_(std::max<TimeNs>(1, step_ns)), stops_(std::move(stops)) {}

TimeNs Stretch::stops(std::int64_t j) const {
  TimeNs sum = 0;
  for (const Stop& stop : stops_) {
    if (stop.every > 0) sum += ((first_ + j) / stop.every - first_ / stop.every) * stop.blocks_ns;
  }
  return sum;
}

TimeNs Stretch::stops_after(std::int64_t j) const { return j > 0 ? stops(j) - stops(j - 1) : 0; }

TimeNs Stretch::commit(std::int64_t j) const { return begin_ + j * step_ns_ + (j > 0 ? stops(j - 1) : 0); }

std::int64_t Stretch::committed(TimeNs at) const {
  if (at < begin_) return 0;
  std::int64_t low = 0, high = (at - begin_) / step_ns_;  // without stops
  while (low < high) {
    const std::int64_t middle = low + (high - low + 1) / 2;
    if (commit(middle) <= at)
      low = middle;
    else
      high = middle - 1;
  }
  return low;
}

TimeNs Stretch::in_order(TimeNs at) const {
  const std::int64_t j = committed(at);
  const TimeNs end = commit(j) + stops_after(j);
  return end >= at ? end : commit(j + 1) + stops_after(j + 1);
}

TimeNs Stretch::checkpoint_begins(std::size_t which, std::int64_t j) const {
  TimeNs at = commit(j);
  for (std::size_t i = 0; i < which; ++i) {
    if (stops_[i].every > 0 && (first_ + j) % stops_[i].every == 0) at += stops_[i].blocks_ns;
  }
  return at;
}

}  // namespace seeksim::harness::campaign
