// The axis of a timeline: virtual time to x. Long stretches in which nothing begins or ends are drawn short, so that a
// watchdog's minute leaves room for the milliseconds around it.
#pragma once

#include <string>
#include <vector>

#include "harness/html/intervals.h"
#include "harness/html/marks.h"

namespace seeksim::harness::html {

// Units of x from the left to the right edge.
inline constexpr int kTimelineUnits = 100'000;

class Axis {
 public:
  // A stretch that is drawn short.
  struct Break {
    Interval of;
    double from = 0, to = 0;  // x
  };
  // moments: when something begins, ends or is marked, in any order. begin < end.
  Axis(TimeNs begin, TimeNs end, std::vector<TimeNs> moments);

  TimeNs begin() const { return knots_.front().at; }
  TimeNs end() const { return knots_.back().at; }
  double x(double at_ns) const;  // times outside stand at the edge
  double time(double x) const;   // ns
  double shortest() const;       // ns of one unit, where the axis is stretched most
  const std::vector<Break>& breaks() const { return breaks_; }
  // "[[seconds,x],...]": between these the axis is linear.
  std::string knots() const;

 private:
  struct Knot {
    TimeNs at = 0;
    double x = 0;
  };
  std::vector<Knot> knots_;  // two or more, both growing
  std::vector<Break> breaks_;
};

// The axis of a run that ended at end_s.
Axis axis_of(const std::vector<RankWork>& work, const std::vector<Mark>& marks, double end_s);

}  // namespace seeksim::harness::html
