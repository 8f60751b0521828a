#include "harness/html/axis.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

namespace seeksim::harness::html {
namespace {

constexpr double kLongStretch = 0.25;  // of what is left of the axis
constexpr double kDrawnShort = 0.05;
constexpr std::size_t kBreaksMost = 8;

// Stretches without a moment that are long beside all that is left without the longer ones, in the order of time.
std::vector<Interval> long_stretches(TimeNs begin, TimeNs end, std::vector<TimeNs> moments) {
  moments.push_back(begin);
  moments.push_back(end);
  std::sort(moments.begin(), moments.end());
  std::vector<Interval> all;
  for (std::size_t i = 1; i < moments.size(); ++i) {
    const Interval one{std::max(begin, moments[i - 1]), std::min(end, moments[i])};
    if (one.end > one.begin) all.push_back(one);
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const Interval& a, const Interval& b) { return a.end - a.begin > b.end - b.begin; });
  double rest = double(end - begin);
  std::size_t count = 0;
  for (; count < std::min(all.size(), kBreaksMost); ++count) {
    const double length = double(all[count].end - all[count].begin);
    if (length <= kLongStretch * rest) break;
    rest -= length;
  }
  all.resize(count);
  std::sort(all.begin(), all.end(), [](const Interval& a, const Interval& b) { return a.begin < b.begin; });
  return all;
}

}  // namespace

Axis::Axis(TimeNs begin, TimeNs end, std::vector<TimeNs> moments) {
  std::vector<Interval> stretches = long_stretches(begin, end, std::move(moments));
  double rest = double(end - begin);
  for (const Interval& one : stretches) rest -= double(one.end - one.begin);
  if (rest <= 0) stretches.clear();
  const double drawn = 1 - kDrawnShort * double(stretches.size());  // of what is not short
  knots_.push_back({begin, 0});
  double x = 0;
  const auto go_to = [&](TimeNs at, double more) {
    x += more * kTimelineUnits;
    if (at > knots_.back().at) knots_.push_back({at, x});
  };
  for (const Interval& one : stretches) {
    go_to(one.begin, double(one.begin - knots_.back().at) / rest * drawn);
    const double from = x;
    go_to(one.end, kDrawnShort);
    breaks_.push_back({one, from, x});
  }
  if (stretches.empty()) rest = double(end - begin);
  go_to(end, double(end - knots_.back().at) / rest * drawn);
  knots_.back().x = kTimelineUnits;
}

double Axis::x(double at_ns) const {
  if (at_ns <= double(begin())) return 0;
  const auto after =
      std::find_if(knots_.begin(), knots_.end(), [&](const Knot& knot) { return double(knot.at) >= at_ns; });
  if (after == knots_.end()) return kTimelineUnits;
  const Knot &from = *std::prev(after), &to = *after;
  return from.x + (to.x - from.x) * (at_ns - double(from.at)) / double(to.at - from.at);
}

double Axis::time(double x) const {
  if (x <= 0) return double(begin());
  const auto after = std::find_if(knots_.begin(), knots_.end(), [&](const Knot& knot) { return knot.x >= x; });
  if (after == knots_.end()) return double(end());
  const Knot &from = *std::prev(after), &to = *after;
  return double(from.at) + double(to.at - from.at) * (to.x > from.x ? (x - from.x) / (to.x - from.x) : 1);
}

double Axis::shortest() const {
  double least = double(end() - begin());
  for (std::size_t i = 1; i < knots_.size(); ++i)
    least = std::min(least, double(knots_[i].at - knots_[i - 1].at) / std::max(knots_[i].x - knots_[i - 1].x, 1e-9));
  return least;
}

std::string Axis::knots() const {
  std::string text;
  for (const Knot& knot : knots_)
    fmt::format_to(std::back_inserter(text), "{}[{:.9f},{:.3f}]", text.empty() ? "" : ",", double(knot.at) / 1e9,
                   knot.x);
  return "[" + text + "]";
}

Axis axis_of(const std::vector<RankWork>& work, const std::vector<Mark>& marks, double end_s) {
  TimeNs end = std::max<TimeNs>(1, TimeNs(std::llround(end_s * 1e9)));
  std::vector<TimeNs> moments;
  for (const Mark& mark : marks) moments.push_back(TimeNs(std::llround(mark.at_s * 1e9)));
  for (const RankWork& rank : work) {
    for (const Intervals& intervals : rank.of) {
      for (const Interval& one : intervals) moments.insert(moments.end(), {one.begin, one.end});
    }
  }
  for (const TimeNs at : moments) end = std::max(end, at);
  return {0, end, std::move(moments)};
}

}  // namespace seeksim::harness::html
