// Line charts as SVG: axes, lines, a text alternative. The numbers stand in a table beside them.
#pragma once

#include <string>
#include <vector>

namespace seeksim::harness::html {

// One line: a value a step, from step 0. NaN and infinities are gaps.
struct Series {
  std::string name;
  std::vector<double> values;
};

struct Chart {
  std::string title;
  std::string unit;            // empty: it has none
  std::vector<Series> series;  // one or two
};

// A figure; empty where no series has a finite value. Long series are drawn as the least and the most of each column.
std::string chart(const Chart& chart);

// A horizontal bar, as long as the share of the largest.
std::string bar(double share);

// Round numbers from `low` to `high`, at most `most` of them.
std::vector<double> ticks(double low, double high, int most);

}  // namespace seeksim::harness::html
