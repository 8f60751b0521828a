#include "harness/html/charts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "harness/html/escape.h"

namespace seeksim::harness::html {
namespace {

constexpr double kWidth = 400, kHeight = 200;
constexpr double kLeft = 62, kRight = 12, kTop = 10, kBottom = 34;
constexpr std::size_t kColumnsMost = 400;

struct Range {
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();
  std::size_t steps = 0;
  bool any() const { return low <= high; }
};

Range range_of(const std::vector<Series>& all) {
  Range range;
  for (const Series& series : all) {
    range.steps = std::max(range.steps, series.values.size());
    for (const double value : series.values) {
      if (!std::isfinite(value)) continue;
      range.low = std::min(range.low, value);
      range.high = std::max(range.high, value);
    }
  }
  if (!range.any()) return range;
  const double margin = range.high > range.low ? (range.high - range.low) * 0.06 : std::abs(range.high) * 0.05 + 1e-12;
  range.low = range.low >= 0 && range.low < margin ? 0 : range.low - margin;
  range.high += margin;
  return range;
}

double x_of(double step, const Range& range) {
  const double last = range.steps > 1 ? double(range.steps - 1) : 1;
  const double part = range.steps > 1 ? step / last : 0.5;
  return kLeft + (kWidth - kLeft - kRight) * part;
}

double y_of(double value, const Range& range) {
  return kTop + (kHeight - kTop - kBottom) * (1 - (value - range.low) / (range.high - range.low));
}

// The points of a line, a gap where there is no number.
std::string points(const Series& series, const Range& range) {
  const std::size_t n = series.values.size();
  const std::size_t each = (n + kColumnsMost - 1) / kColumnsMost;  // steps a column
  std::string path;
  bool pen = false;
  const auto go = [&](std::size_t step, double value) {
    fmt::format_to(std::back_inserter(path), "{}{:.1f} {:.1f}", pen ? 'L' : 'M', x_of(double(step), range),
                   y_of(value, range));
    pen = true;
  };
  for (std::size_t begin = 0; begin < n; begin += each) {
    const std::size_t end = std::min(n, begin + each);
    std::size_t least = end, most = end;
    for (std::size_t i = begin; i < end; ++i) {
      if (!std::isfinite(series.values[i])) continue;
      if (least == end || series.values[i] < series.values[least]) least = i;
      if (most == end || series.values[i] > series.values[most]) most = i;
    }
    if (least == end) {
      pen = false;
      continue;
    }
    go(std::min(least, most), series.values[std::min(least, most)]);
    if (least != most) go(std::max(least, most), series.values[std::max(least, most)]);
  }
  return path;
}

std::string dots(const Series& series, std::size_t number, const Range& range) {
  if (series.values.size() > 60) return "";
  std::string out;
  for (std::size_t i = 0; i < series.values.size(); ++i) {
    if (!std::isfinite(series.values[i])) continue;
    out += fmt::format("<circle class=\"d{}\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{}\"/>", number, x_of(double(i), range),
                       y_of(series.values[i], range), number == 0 ? 2.6 : 2.0);
  }
  return out;
}

std::string axes(const Range& range) {
  std::string out;
  for (const double value : ticks(range.low, range.high, 5)) {
    const double y = y_of(value, range);
    out += fmt::format(
        "<path class=\"grid\" d=\"M{} {:.1f}H{}\"/><text class=\"soft\" x=\"{}\" y=\"{:.1f}\" "
        "text-anchor=\"end\">{:.4g}</text>",
        kLeft, y, kWidth - kRight, kLeft - 6, y + 4, value);
  }
  const double last = range.steps > 1 ? double(range.steps - 1) : 0;
  for (const double step : ticks(0, last, 6)) {
    if (step != std::floor(step)) continue;
    out += fmt::format("<text class=\"soft\" x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\">{}</text>", x_of(step, range),
                       kHeight - kBottom + 17, step);
  }
  return out + fmt::format("<text class=\"soft\" x=\"{}\" y=\"{}\" text-anchor=\"middle\">step</text>",
                           (kLeft + kWidth - kRight) / 2, kHeight - 3);
}

std::string in_words(const Chart& chart, const Range& range) {
  std::string text = fmt::format("{} over {} steps", chart.title, range.steps);
  for (const Series& series : chart.series) {
    const auto finite = [](double value) { return std::isfinite(value); };
    const auto first = std::find_if(series.values.begin(), series.values.end(), finite);
    const auto last = std::find_if(series.values.rbegin(), series.values.rend(), finite);
    if (first == series.values.end()) continue;
    text += fmt::format("; {}: from {:.6g} to {:.6g}", series.name, *first, *last);
  }
  return text;
}

}  // namespace

std::vector<double> ticks(double low, double high, int most) {
  if (!(high > low)) return {low};
  const double rough = (high - low) / most;
  const double power = std::pow(10.0, std::floor(std::log10(rough)));
  double step = power;
  for (const double factor : {1.0, 2.0, 5.0, 10.0}) {
    step = power * factor;
    if (step >= rough) break;
  }
  std::vector<double> out;
  for (double i = std::ceil(low / step - 1e-9); i * step <= high + step * 1e-9; ++i) out.push_back(i * step + 0.0);
  return out;
}

std::string chart(const Chart& chart) {
  const Range range = range_of(chart.series);
  if (!range.any()) return "";
  std::string lines, key;
  for (std::size_t i = 0; i < chart.series.size(); ++i) {
    const std::string path = points(chart.series[i], range);
    if (path.empty()) continue;
    lines += fmt::format("<path class=\"s{}\" d=\"{}\"/>", i, path) + dots(chart.series[i], i, range);
    key += fmt::format(
        "<li><svg width=\"24\" height=\"8\" aria-hidden=\"true\"><path class=\"s{}\" d=\"M0 4H24\"/></svg>{}</li>", i,
        escaped(chart.series[i].name));
  }
  const std::string unit = chart.unit.empty() ? "" : fmt::format(" <span class=\"note\">({})</span>", chart.unit);
  std::string out = fmt::format("<figure><h3>{}{}</h3>", escaped(chart.title), unit);
  out += fmt::format("<svg viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{}\">{}{}</svg>", kWidth, kHeight,
                     escaped(in_words(chart, range)), axes(range), lines);
  if (chart.series.size() > 1) out += "<ul class=\"key\">" + key + "</ul>";
  return out + "</figure>\n";
}

std::string bar(double share) {
  const double width = std::isfinite(share) ? std::clamp(share, 0.0, 1.0) * 120 : 0;
  return fmt::format(
      "<svg width=\"120\" height=\"10\" aria-hidden=\"true\"><rect class=\"bar\" width=\"{:.1f}\" "
      "height=\"10\"/></svg>",
      width);
}

}  // namespace seeksim::harness::html
