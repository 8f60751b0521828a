#include "harness/campaign/picture.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>
#include <map>
#include <optional>

#include "harness/campaign/study_report.h"
#include "harness/html/charts.h"
#include "harness/html/escape.h"

namespace seeksim::harness::campaign {
namespace {

constexpr double kWidth = 900, kLeft = 70, kRight = 250, kTop = 50, kBottom = 60, kPlotHeight = 380;
constexpr std::size_t kPoliciesDrawn = 60;
// Told apart also by those who do not see red and green (Okabe and Ito's colours).
constexpr const char* kColours[] = {"#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                    "#e69f00", "#56b4e9", "#555555", "#8c6d31"};

const char* colour(std::size_t i) { return kColours[i % std::size(kColours)]; }

// What is lost to what, without what is useful; in the order of the bars.
constexpr Spent kLost[] = {Spent::redone,     Spent::cut_short,  Spent::checkpoints, Spent::detection, Spent::agreement,
                           Spent::waiting,    Spent::swapping,   Spent::restarting,  Spent::reading,   Spent::starting,
                           Spent::rebuilding, Spent::straggling, Spent::shrunk};
constexpr const char* kLostColours[] = {"#d55e00", "#f0a070", "#0072b2", "#e69f00", "#f2d06b", "#999999", "#bbbbbb",
                                        "#009e73", "#66c2a4", "#a6dbc8", "#56b4e9", "#cc79a7", "#7b3f6e"};
static_assert(std::size(kLost) == std::size(kLostColours) && std::size(kLost) + 1 == kSpent);

std::string text_at(double x, double y, const std::string& text, const char* anchor = "start", int size = 13) {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\" font-size=\"{}\">{}</text>\n", x, y, anchor,
                     size, html::escaped(text));
}

std::string line_at(double x1, double y1, double x2, double y2, const char* stroke, double width = 1) {
  return fmt::format(
      "<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"{}\" stroke-width=\"{:g}\"/>\n", x1, y1,
      x2, y2, stroke, width);
}

std::string svg(double height, const std::string& title, const std::string& body) {
  return fmt::format(
             "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:g} {1:g}\" width=\"{0:g}\" height=\"{1:g}\" "
             "font-family=\"sans-serif\" role=\"img\">\n<title>{2}</title>\n<rect width=\"{0:g}\" height=\"{1:g}\" "
             "fill=\"white\"/>\n",
             kWidth, height, html::escaped(title)) +
         text_at(kLeft, 26, title, "start", 17) + body + "</svg>\n";
}

std::optional<double> number_of(const std::string& text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// The axis of numbers with the most values; empty: there is none.
std::string numeric_axis(const Sweep& sweep) {
  std::string best;
  std::size_t most = 1;
  for (const std::vector<SweepAxis>& block : sweep.blocks) {
    for (const SweepAxis& axis : block) {
      const bool numbers = std::all_of(axis.values.begin(), axis.values.end(),
                                       [](const std::string& value) { return number_of(value).has_value(); });
      if (!numbers || axis.values.size() <= most) continue;
      best = axis.key;
      most = axis.values.size();
    }
  }
  return best;
}

struct Point {
  double x = 0;
  Estimated y;
};
using Lines = std::map<std::string, std::vector<Point>>;  // by what else is set

Lines lines_of(const StudyResult& result, const std::string& axis) {
  Lines lines;
  for (const PolicyResult& policy : result.policies) {
    Settings others;
    double x = double(&policy - result.policies.data());
    for (const auto& setting : policy.settings) {
      if (setting.first == axis)
        x = number_of(setting.second).value_or(0);
      else
        others.push_back(setting);
    }
    const std::string name = axis.empty() ? label_of(result, policy) : label(others, axis_keys(result.study.sweep));
    lines[name].push_back({x, policy.of(*find_metric("goodput"))});
  }
  for (auto& [name, points] : lines)
    std::sort(points.begin(), points.end(), [](const Point& a, const Point& b) { return a.x < b.x; });
  return lines;
}

// From values to places of the plot. x is drawn by its logarithm where it spans a factor of twenty.
struct Frame {
  double x_low = 0, x_high = 1, y_low = 0, y_high = 1;
  bool logarithmic = false;
  double x(double value) const {
    const auto at = [&](double v) { return logarithmic ? std::log(v) : v; };
    return kLeft + (kWidth - kLeft - kRight) * (at(value) - at(x_low)) / std::max(1e-12, at(x_high) - at(x_low));
  }
  double y(double value) const { return kTop + kPlotHeight * (1 - (value - y_low) / (y_high - y_low)); }
};

Frame frame_of(const Lines& lines) {
  Frame f{1e300, -1e300, 1e300, -1e300, false};
  for (const auto& [name, points] : lines) {
    for (const Point& point : points) {
      f.x_low = std::min(f.x_low, point.x);
      f.x_high = std::max(f.x_high, point.x);
      f.y_low = std::min(f.y_low, 100 * point.y.low);
      f.y_high = std::max(f.y_high, 100 * point.y.high);
    }
  }
  const double margin = std::max(0.05, 0.06 * (f.y_high - f.y_low));
  f.y_low = std::max(0.0, f.y_low - margin);
  f.y_high = std::min(100.0, f.y_high + margin);
  f.logarithmic = f.x_low > 0 && f.x_high > 20 * f.x_low;
  if (f.x_low >= f.x_high) {
    f.x_low -= 0.5;
    f.x_high += 0.5;
  }
  return f;
}

std::string axes(const Frame& f, const std::string& under, bool named) {
  std::string out;
  for (const double tick : html::ticks(f.y_low, f.y_high, 8)) {
    out += line_at(kLeft, f.y(tick), kWidth - kRight, f.y(tick), "#dddddd");
    out += text_at(kLeft - 8, f.y(tick) + 4, fmt::format("{:g} %", tick), "end");
  }
  out += line_at(kLeft, kTop + kPlotHeight, kWidth - kRight, kTop + kPlotHeight, "#333333");
  if (named) out += text_at((kLeft + kWidth - kRight) / 2, kTop + kPlotHeight + 46, under, "middle");
  return out;
}

}  // namespace

std::string goodput_picture(const StudyResult& result) {
  const std::string axis = numeric_axis(result.study.sweep);
  const Lines lines = lines_of(result, axis);
  const Frame f = frame_of(lines);
  std::string body = axes(f, short_name(axis, axis_keys(result.study.sweep)), !axis.empty());
  std::vector<double> told;  // values along the axis
  std::size_t i = 0;
  for (const auto& [name, points] : lines) {
    std::string path;
    for (const Point& point : points) {
      const double x = f.x(point.x);
      fmt::format_to(std::back_inserter(path), "{}{:.1f} {:.1f}", path.empty() ? 'M' : 'L', x, f.y(100 * point.y.mean));
      body += line_at(x, f.y(100 * point.y.low), x, f.y(100 * point.y.high), colour(i), 1.5);
      body += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3.5\" fill=\"{}\"/>\n", x, f.y(100 * point.y.mean),
                          colour(i));
      if (!axis.empty() && std::find(told.begin(), told.end(), point.x) == told.end()) {
        told.push_back(point.x);
        body += text_at(x, kTop + kPlotHeight + 20, fmt::format("{:g}", point.x), "middle");
      }
    }
    body += fmt::format("<path d=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"2\"/>\n", path, colour(i));
    if (i < 20 && lines.size() + std::size_t(axis.empty()) > 1) {
      const double y = kTop + 10 + 18 * double(i);
      body += line_at(kWidth - kRight + 14, y, kWidth - kRight + 34, y, colour(i), 3);
      body += text_at(kWidth - kRight + 40, y + 4, name.substr(0, 30), "start", 12);
    }
    ++i;
  }
  return svg(kTop + kPlotHeight + kBottom, result.study.name + ": goodput, with intervals of 95 %", body);
}

std::string survival_picture(const StudyResult& result) {
  constexpr std::size_t kCurvesMost = 16;
  static const std::pair<double, const char*> kTicks[] = {{1.0 / 60, "1 min"}, {1.0 / 6, "10 min"}, {1, "1 h"},
                                                          {6, "6 h"},          {24, "1 d"},         {168, "7 d"},
                                                          {720, "30 d"},       {8760, "365 d"}};
  const auto hours = [](std::size_t of_class) { return double(RunLengths::edge(of_class)) / 3600e9; };
  const std::size_t curves = std::min(kCurvesMost, result.policies.size());
  std::size_t longest = 2;
  for (std::size_t i = 0; i < curves; ++i) longest = std::max(longest, result.policies[i].runs().survival().size());
  const Frame f{hours(0), hours(longest - 1), 0, 100, true};
  std::string body = axes(f, "running without an unplanned stop, at least", true);
  for (const auto& [at, text] : kTicks) {
    if (at < f.x_low || at > f.x_high) continue;
    body += line_at(f.x(at), kTop, f.x(at), kTop + kPlotHeight, "#eeeeee");
    body += text_at(f.x(at), kTop + kPlotHeight + 20, text, "middle");
  }
  for (std::size_t i = 0; i < curves; ++i) {
    std::string path = fmt::format("M{:.1f} {:.1f}", f.x(f.x_low), f.y(100));
    const std::vector<double> survival = result.policies[i].runs().survival();
    for (std::size_t k = 0; k < survival.size(); ++k)
      fmt::format_to(std::back_inserter(path), "L{:.1f} {:.1f}", f.x(hours(k)), f.y(100 * survival[k]));
    body += fmt::format("<path d=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"2\"/>\n", path, colour(i));
    if (result.policies.size() < 2) continue;
    const double x = kLeft + (i % 2 == 0 ? 0 : 410), y = kTop + kPlotHeight + 80 + 20 * double(i / 2);
    body += line_at(x, y, x + 20, y, colour(i), 3);
    body += text_at(x + 26, y + 4, label_of(result, result.policies[i]).substr(0, 56), "start", 12);
  }
  double height = kTop + kPlotHeight + kBottom + (result.policies.size() < 2 ? 0 : 20 + 20 * double((curves + 1) / 2));
  if (curves < result.policies.size()) {
    body += text_at(kLeft, height + 4,
                    fmt::format("{} more policies are in the table.", result.policies.size() - curves), "start", 12);
    height += 20;
  }
  return svg(height, result.study.name + ": how long the job runs", body);
}

std::string lost_picture(const StudyResult& result) {
  constexpr double kBar = 22, kNames = 300;
  const std::size_t rows = std::min(kPoliciesDrawn, result.policies.size());
  double most = 1e-9;
  for (std::size_t row = 0; row < rows; ++row)
    most = std::max(most, 100 * (1 - result.policies[row].of(*find_metric("goodput")).mean));
  const double scale = (kWidth - kNames - 90) / most;
  std::string body;
  std::vector<bool> met(std::size(kLost));
  for (std::size_t row = 0; row < rows; ++row) {
    const PolicyResult& policy = result.policies[row];
    const double y = kTop + double(row) * (kBar + 6);
    double x = kNames;
    body += text_at(kNames - 8, y + 16, label_of(result, policy).substr(0, 38), "end", 12);
    for (std::size_t i = 0; i < std::size(kLost); ++i) {
      const double width = 100 * policy.share(kLost[i]).mean * scale;
      if (width <= 0) continue;
      met[i] = true;
      body += fmt::format(
          "<rect x=\"{:.2f}\" y=\"{:.1f}\" width=\"{:.2f}\" height=\"{:g}\" fill=\"{}\"><title>{} {:.2f} "
          "%</title></rect>\n",
          x, y, width, kBar, kLostColours[i], name(kLost[i]), width / scale);
      x += width;
    }
    body += text_at(x + 6, y + 16, fmt::format("{:.2f} %", (x - kNames) / scale), "start", 12);
  }
  double y = kTop + double(rows) * (kBar + 6) + 24, x = kNames;
  for (std::size_t i = 0; i < std::size(kLost); ++i) {
    if (!met[i]) continue;
    if (x > kWidth - 150) {
      x = kNames;
      y += 20;
    }
    body += fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"12\" height=\"12\" fill=\"{}\"/>\n", x, y - 10,
                        kLostColours[i]);
    body += text_at(x + 17, y, name(kLost[i]), "start", 12);
    x += 120;
  }
  if (rows < result.policies.size()) {
    y += 26;
    body += text_at(kNames, y, fmt::format("{} more policies are in the table.", result.policies.size() - rows));
  }
  return svg(y + 24, result.study.name + ": time that is lost, by cause", body);
}

}  // namespace seeksim::harness::campaign
