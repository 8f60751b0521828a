#include "harness/calibration/error_picture.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

namespace seeksim::harness::calibration {
namespace {

constexpr double kSide = 460, kLeft = 70, kTop = 50, kBottom = 60, kRight = 210, kBand = 1.1;
// Told apart also by those who do not see red and green (Okabe and Ito's colours).
constexpr const char* kColours[] = {"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#555555"};

struct Point {
  double measured = 0, predicted = 0;
  std::string group;    // told by its colour
  bool fitted = false;  // the fit has seen it
};

// "titan-8b" and "blind-titan-7b" are of one group; what was found afterwards is told by its own.
std::string group_of(const std::string& series) {
  const bool blind = series.starts_with("blind-");
  const std::string name = blind ? series.substr(std::size("blind-") - 1) : series;
  return name.substr(0, name.find('-')) + (blind ? ", found later" : "");
}

class Picture {
 public:
  Picture(std::vector<Point> points, std::string title, std::string unit)
      : points_(std::move(points)), title_(std::move(title)), unit_(std::move(unit)) {
    for (const Point& point : points_) {
      for (const double value : {point.measured, point.predicted}) {
        least_ = least_ == 0 ? value : std::min(least_, value);
        most_ = std::max(most_, value);
      }
      if (std::find(groups_.begin(), groups_.end(), point.group) == groups_.end()) groups_.push_back(point.group);
    }
    least_ /= 1.3, most_ *= 1.3;
  }

  std::string svg() const {
    const double width = kLeft + kSide + kRight, height = kTop + kSide + kBottom;
    return fmt::format(
               "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:g} {1:g}\" width=\"{0:g}\" height=\"{1:g}\" "
               "font-family=\"sans-serif\" role=\"img\">\n<title>{2}</title>\n<rect width=\"{0:g}\" height=\"{1:g}\" "
               "fill=\"white\"/>\n",
               width, height, title_) +
           text(kLeft, 28, title_, "start", 16) + band() + axes() + dots() + legend() + "</svg>\n";
  }

 private:
  double part(double value) const { return std::log(value / least_) / std::log(most_ / least_); }
  double x(double value) const { return kLeft + kSide * part(value); }
  double y(double value) const { return kTop + kSide * (1 - part(value)); }

  static std::string text(double at_x, double at_y, const std::string& words, const char* anchor, int size = 13) {
    return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\" font-size=\"{}\">{}</text>\n", at_x, at_y,
                       anchor, size, words);
  }

  // Within 10 % of the line on which both are the same.
  std::string band() const {
    const double a = least_, b = most_;
    return fmt::format(
               "<polygon points=\"{:.1f},{:.1f} {:.1f},{:.1f} {:.1f},{:.1f} {:.1f},{:.1f} {:.1f},{:.1f} "
               "{:.1f},{:.1f}\" "
               "fill=\"#e8eef5\"/>\n",
               x(a), y(a), x(a), y(a * kBand), x(b / kBand), y(b), x(b), y(b), x(b), y(b / kBand), x(a * kBand), y(a)) +
           fmt::format("<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"#8899aa\"/>\n", x(a),
                       y(a), x(b), y(b));
  }

  std::string axes() const {
    std::string all =
        fmt::format("<rect x=\"{:g}\" y=\"{:g}\" width=\"{:g}\" height=\"{:g}\" fill=\"none\" stroke=\"#333333\"/>\n",
                    kLeft, kTop, kSide, kSide);
    for (double ten = std::pow(10, std::floor(std::log10(least_))); ten <= most_; ten *= 10) {
      for (const double step : {1, 2, 5}) {
        const double value = ten * step;
        if (value < least_ || value > most_) continue;
        all += text(x(value), kTop + kSide + 18, fmt::format("{:g}", value), "middle");
        all += text(kLeft - 8, y(value) + 4, fmt::format("{:g}", value), "end");
      }
    }
    all += text(kLeft + kSide / 2, kTop + kSide + 44, "measured, " + unit_, "middle");
    return all + fmt::format(
                     "<text x=\"22\" y=\"{0:.1f}\" text-anchor=\"middle\" font-size=\"13\" "
                     "transform=\"rotate(-90 22 {0:.1f})\">predicted, {1}</text>\n",
                     kTop + kSide / 2, unit_);
  }

  const char* colour(const std::string& group) const {
    const auto at = std::find(groups_.begin(), groups_.end(), group) - groups_.begin();
    return kColours[std::size_t(at) % std::size(kColours)];
  }

  static std::string dot(double at_x, double at_y, const char* colour, bool fitted) {
    return fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"4\" stroke=\"{}\" fill=\"{}\" fill-opacity=\"0.7\"/>\n",
                       at_x, at_y, colour, fitted ? "white" : colour);
  }

  std::string dots() const {
    std::string all;
    for (const Point& point : points_)
      all += dot(x(point.measured), y(point.predicted), colour(point.group), point.fitted);
    return all;
  }

  std::string legend() const {
    const double left = kLeft + kSide + 24;
    double down = kTop + 14;
    std::string all;
    const auto row = [&](const char* shade, bool fitted, const std::string& words) {
      all += dot(left, down - 4, shade, fitted) + text(left + 12, down, words, "start");
      down += 22;
    };
    for (const std::string& group : groups_) row(colour(group), false, group);
    down += 12;
    row("#333333", false, "no fit has seen it");
    row("#333333", true, "in the fit");
    all += fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"12\" height=\"12\" fill=\"#e8eef5\"/>\n", left - 6,
                       down - 12);
    return all + text(left + 12, down, "within 10 %", "start");
  }

  std::vector<Point> points_;
  std::string title_, unit_;
  std::vector<std::string> groups_;
  double least_ = 0, most_ = 0;
};

}  // namespace

std::string steps_picture(const std::vector<Measurement>& rows) {
  std::vector<Point> points;
  for (const Measurement& row : rows)
    if (row.step)
      points.push_back(
          {row.us / 1e6, predicted_us(row, Constants{}) / 1e6, group_of(row.series), row.kept == Kept::fitted});
  return Picture(std::move(points), "How long a step takes", "s").svg();
}

std::string memory_picture(const std::vector<MemoryMeasurement>& rows) {
  std::vector<Point> points;
  for (const MemoryMeasurement& row : rows)
    if (row.what != MemoryMeasurement::What::fits)
      points.push_back(
          {row.bytes / 1e9, predicted_bytes(row, Constants{}) / 1e9, group_of(row.series), row.kept == Kept::fitted});
  return Picture(std::move(points), "What a GPU holds at its peak", "GB").svg();
}

}  // namespace seeksim::harness::calibration
