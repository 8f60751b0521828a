#include "harness/html/memory_chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <utility>
#include <vector>

#include "harness/html/charts.h"
#include "harness/html/escape.h"
#include "harness/html/page.h"

#include <nlohmann/json.hpp>

namespace seeksim::harness::html {
namespace {

using Memory = sim::Timeline::Memory;

constexpr double kMemoryWidth = 860, kMemoryHeight = 280;
constexpr double kMemoryLeft = 84, kMemoryRight = 14, kMemoryTop = 26, kMemoryBottom = 30;
constexpr int kMemoryColumns = 400;
constexpr std::size_t kRowsInTheTable = 200;

struct Unit {
  double bytes;
  const char* name;
};

Unit unit_of(double bytes) {
  for (const Unit& unit : {Unit{1e12, "TB"}, Unit{1e9, "GB"}, Unit{1e6, "MB"}, Unit{1e3, "kB"}}) {
    if (bytes >= unit.bytes) return unit;
  }
  return {1, "B"};
}

// What is drawn: one rank's levels in the order of time, its peak among them.
struct Levels {
  const Memory& peak;
  std::vector<Memory> all;
  std::vector<std::size_t> tags;  // that hold something at some time, from below
  Axis axis;
  double top;  // bytes at the upper edge

  double x(double column_units) const {
    return kMemoryLeft + (kMemoryWidth - kMemoryLeft - kMemoryRight) * column_units / double(kTimelineUnits);
  }
  double y(double bytes) const { return kMemoryTop + (kMemoryHeight - kMemoryTop - kMemoryBottom) * (1 - bytes / top); }
};

std::vector<Memory> levels_of(const sim::Timeline& timeline, const Memory& peak) {
  std::vector<Memory> all;
  for (const Memory& one : timeline.memory()) {
    if (one.rank == peak.rank) all.push_back(one);
  }
  const bool there = std::any_of(all.begin(), all.end(),
                                 [&](const Memory& one) { return one.at == peak.at && one.bytes == peak.bytes; });
  if (!there) all.push_back(peak);
  std::stable_sort(all.begin(), all.end(), [](const Memory& a, const Memory& b) { return a.at < b.at; });
  return all;
}

// By column: the level with the largest total in it.
std::vector<Memory> columns_of(const Levels& levels) {
  std::vector<Memory> columns;
  const Memory nothing;
  const Memory* now = &nothing;
  std::size_t next = 0;
  for (int i = 0; i < kMemoryColumns; ++i) {
    const double until = double(kTimelineUnits) * (i + 1) / kMemoryColumns;
    const Memory* most = now;
    for (; next < levels.all.size(); ++next) {
      const Memory& one = levels.all[next];
      if (i + 1 < kMemoryColumns && levels.axis.x(double(one.at)) >= until) break;
      now = &one;
      if (one.total() > most->total()) most = &one;
    }
    columns.push_back(*most);
  }
  return columns;
}

// One area a tag, each down to the base, the topmost first: the later ones cover what is not theirs.
std::string areas(const Levels& levels) {
  const std::vector<Memory> columns = columns_of(levels);
  std::string out;
  for (std::size_t upper = levels.tags.size(); upper-- > 0;) {
    std::string path = fmt::format("M{} {}", kMemoryLeft, levels.y(0));
    double last = -1;
    for (int i = 0; i < kMemoryColumns; ++i) {
      double bytes = 0;
      for (std::size_t k = 0; k <= upper; ++k) bytes += double(columns[std::size_t(i)].bytes[levels.tags[k]]);
      if (bytes == last) continue;
      fmt::format_to(std::back_inserter(path), "H{:.1f}V{:.1f}", levels.x(double(kTimelineUnits) * i / kMemoryColumns),
                     levels.y(bytes));
      last = bytes;
    }
    out += fmt::format("<path class=\"k{}\" d=\"{}H{}V{}z\"/>\n", levels.tags[upper], path, kMemoryWidth - kMemoryRight,
                       levels.y(0));
  }
  return out;
}

std::string axes(const Levels& levels) {
  const Unit unit = unit_of(double(levels.peak.total()));
  std::string out;
  for (const double value : ticks(0, levels.top / unit.bytes, 5)) {
    const double y = levels.y(value * unit.bytes);
    out += fmt::format(
        "<path class=\"grid\" d=\"M{} {:.1f}H{}\"/><text class=\"soft\" x=\"{}\" y=\"{:.1f}\" "
        "text-anchor=\"end\">{:.4g} {}</text>",
        kMemoryLeft, y, kMemoryWidth - kMemoryRight, kMemoryLeft - 6, y + 4, value, unit.name);
  }
  constexpr int kParts = 4;
  for (int i = 0; i <= kParts; ++i) {
    const double at = double(kTimelineUnits) * i / kParts;
    out += fmt::format("<text class=\"soft\" x=\"{:.1f}\" y=\"{}\" text-anchor=\"{}\">{}</text>", levels.x(at),
                       kMemoryHeight - 8,
                       i == 0        ? "start"
                       : i == kParts ? "end"
                                     : "middle",
                       seconds_shown(levels.axis.time(at) / 1e9, 6));
  }
  return out + '\n';
}

std::string peak_mark(const Levels& levels) {
  const double x = levels.x(levels.axis.x(double(levels.peak.at))), y = levels.y(double(levels.peak.total()));
  const bool on_the_left = x > kMemoryWidth / 2;
  return fmt::format(
      "<path class=\"at\" d=\"M{0:.1f} {1}V{2:.1f}\"/><circle class=\"peak\" cx=\"{0:.1f}\" cy=\"{3:.1f}\" "
      "r=\"4\"/><text x=\"{4:.1f}\" y=\"{5}\" text-anchor=\"{6}\">peak: {7}</text>\n",
      x, kMemoryTop - 8, levels.y(0), y, on_the_left ? x - 8 : x + 8, kMemoryTop - 10, on_the_left ? "end" : "start",
      bytes_shown(Json(levels.peak.total())));
}

std::string veils(const Levels& levels) {
  std::string out;
  for (const Axis::Break& one : levels.axis.breaks())
    out += fmt::format("<path class=\"break\" d=\"M{0:.1f} {2}H{1:.1f}V{3}H{0:.1f}z\"/>\n", levels.x(one.from),
                       levels.x(one.to), kMemoryTop, levels.y(0));
  return out;
}

std::string step_of(const sim::Timeline& timeline, const Memory& memory) {
  const std::int64_t step = timeline.parts().at(memory.part).step;
  return step < 0 ? "before the first step" : fmt::format("in step {}", step);
}

std::string swatch(std::size_t tag) {
  return fmt::format(
      "<svg class=\"sw\" width=\"12\" height=\"12\" aria-hidden=\"true\"><rect class=\"k{}\" width=\"12\" "
      "height=\"12\"/></svg> ",
      tag);
}

std::string tag_name(std::size_t tag) { return std::string(name(runtime::MemoryTag(tag))); }

// From above, as the areas lie.
std::string by_tag(const Levels& levels) {
  std::vector<Cells> rows;
  for (auto tag = levels.tags.rbegin(); tag != levels.tags.rend(); ++tag) {
    std::size_t most = 0;
    for (const Memory& one : levels.all) most = std::max(most, one.bytes[*tag]);
    rows.push_back({swatch(*tag) + tag_name(*tag), bytes_shown(Json(levels.peak.bytes[*tag])),
                    std::to_string(levels.peak.bytes[*tag]), std::to_string(most),
                    std::to_string(levels.all.back().bytes[*tag])});
  }
  rows.push_back({"all", bytes_shown(Json(levels.peak.total())), std::to_string(levels.peak.total()), "",
                  std::to_string(levels.all.back().total())});
  return table(fmt::format("rank {}, by tag, from above", levels.peak.rank),
               {"tag", "at the peak", "bytes", "most at any time", "at the end"}, rows);
}

// The fullest moment of each step.
std::string by_step(const sim::Timeline& timeline, const Levels& levels) {
  std::map<std::uint32_t, const Memory*> most;
  for (const Memory& one : levels.all) {
    const Memory*& known = most[one.part];
    if (known == nullptr || one.total() > known->total()) known = &one;
  }
  Cells headings = {"step", "virtual time, s", "all"};
  for (const std::size_t tag : levels.tags) headings.push_back(tag_name(tag));
  std::vector<Cells> rows;
  for (const auto& [part, one] : most) {
    if (rows.size() == kRowsInTheTable) break;
    const std::int64_t step = timeline.parts().at(part).step;
    Cells row = {step < 0 ? "before" : std::to_string(step), fmt::format("{:.9g}", double(one->at) / 1e9),
                 std::to_string(one->total())};
    for (const std::size_t tag : levels.tags) row.push_back(std::to_string(one->bytes[tag]));
    rows.push_back(std::move(row));
  }
  const std::string caption =
      most.size() > rows.size() ? fmt::format("the first {} of {} steps", rows.size(), most.size()) : "";
  return folded_part("the fullest moment of each step, in bytes", table(caption, headings, rows));
}

std::string in_words(const sim::Timeline& timeline, const Levels& levels) {
  std::string text =
      fmt::format("Device memory of rank {} over time, by tag. The peak is {} bytes at {:.9g} s, {}", levels.peak.rank,
                  levels.peak.total(), double(levels.peak.at) / 1e9, step_of(timeline, levels.peak));
  for (const std::size_t tag : levels.tags) text += fmt::format("; {}: {}", tag_name(tag), levels.peak.bytes[tag]);
  return text;
}

}  // namespace

std::string memory_figure(const sim::Timeline& timeline, const Axis& axis, const Json& report_peak) {
  int fullest = 0;
  for (int rank = 1; rank < timeline.ranks(); ++rank) {
    if (timeline.memory_peak(rank).total() > timeline.memory_peak(fullest).total()) fullest = rank;
  }
  const Memory& peak = timeline.memory_peak(fullest);
  if (peak.total() == 0) return "";
  std::vector<Memory> all = levels_of(timeline, peak);
  Levels levels{peak, std::move(all), {}, axis, double(peak.total()) * 1.06};
  for (std::size_t tag = 0; tag < peak.bytes.size(); ++tag) {
    if (std::any_of(levels.all.begin(), levels.all.end(), [&](const Memory& one) { return one.bytes[tag] > 0; }))
      levels.tags.push_back(tag);
  }
  std::string out = paragraph(fmt::format("The device of rank {} holds most: {} ({} bytes) at {}, {}.", peak.rank,
                                          bytes_shown(Json(peak.total())), peak.total(),
                                          seconds_shown(double(peak.at) / 1e9, 6), step_of(timeline, peak)));
  if (report_peak.is_number() && report_peak.get<double>() > double(peak.total()))
    out += paragraph("What is gathered after the last step needs more; it is not drawn.");
  out += fmt::format(
      "<figure class=\"mem\"><svg viewBox=\"0 0 {} {}\" role=\"img\" data-rank=\"{}\" data-peak-bytes=\"{}\" "
      "data-peak-ns=\"{}\" aria-label=\"{}\">\n{}{}{}{}</svg><figcaption>Virtual time; at each place the fullest "
      "moment there.{}</figcaption></figure>\n",
      kMemoryWidth, kMemoryHeight, peak.rank, peak.total(), peak.at, escaped(in_words(timeline, levels)), axes(levels),
      areas(levels), veils(levels), peak_mark(levels),
      levels.axis.breaks().empty() ? "" : " Veiled stretches are drawn short, as in the timeline.");
  return out + by_tag(levels) + by_step(timeline, levels);
}

}  // namespace seeksim::harness::html
