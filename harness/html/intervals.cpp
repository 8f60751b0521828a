#include "harness/html/intervals.h"

#include <algorithm>
#include <string_view>

namespace seeksim::harness::html {
namespace {

Work work_of_lane(const sim::Timeline::Lane& lane) {
  const std::string_view name = lane.name;
  if (lane.is_host) return kWaits;
  if (name == "communication queue") return kComm;
  if (name == "copy queue" || name == "storage queue") return kCopies;
  return kCompute;
}

Intervals sorted(Intervals intervals) {
  std::sort(intervals.begin(), intervals.end(), [](const Interval& a, const Interval& b) { return a.begin < b.begin; });
  return joined(intervals, 1);
}

// What of `from` no interval of `of` covers.
Intervals without(const Intervals& from, const Intervals& of) {
  Intervals out;
  std::size_t next = 0;
  for (const Interval& one : from) {
    TimeNs begin = one.begin;
    while (next < of.size() && of[next].end <= begin) ++next;
    for (std::size_t i = next; i < of.size() && of[i].begin < one.end; ++i) {
      if (of[i].begin > begin) out.push_back({begin, of[i].begin});
      begin = std::max(begin, of[i].end);
    }
    if (begin < one.end) out.push_back({begin, one.end});
  }
  return out;
}

}  // namespace

Intervals joined(const Intervals& intervals, TimeNs gap) {
  Intervals out;
  for (const Interval& one : intervals) {
    if (!out.empty() && one.begin - out.back().end < gap)
      out.back().end = std::max(out.back().end, one.end);
    else
      out.push_back(one);
  }
  return out;
}

std::vector<RankWork> work_of(const sim::Timeline& timeline) {
  std::vector<RankWork> ranks(std::size_t(timeline.ranks()));
  for (const sim::Timeline::Span& span : timeline.spans()) {
    const sim::Timeline::Lane& lane = timeline.lanes()[span.lane];
    RankWork& rank = ranks[std::size_t(lane.rank)];
    rank.drawn = true;
    if (span.end > span.begin) rank.of[work_of_lane(lane)].push_back({span.begin, span.end});
  }
  for (RankWork& rank : ranks) {
    for (Intervals& intervals : rank.of) intervals = sorted(std::move(intervals));
    Intervals busy;
    for (const Work work : {kCompute, kComm, kCopies})
      busy.insert(busy.end(), rank.of[work].begin(), rank.of[work].end());
    rank.of[kWaits] = without(rank.of[kWaits], sorted(std::move(busy)));
  }
  return ranks;
}

}  // namespace seeksim::harness::html
