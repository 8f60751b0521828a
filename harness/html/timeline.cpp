#include "harness/html/timeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>

#include "harness/html/axis.h"
#include "harness/html/escape.h"
#include "harness/html/intervals.h"
#include "harness/html/page.h"
#include "runtime/seams/rank_names.h"

namespace seeksim::harness::html {
namespace {

constexpr int kRowHeight = 20;
constexpr std::size_t kIntervalsMost = 40'000;  // of all ranks: about 600 kB
constexpr int kColumns = 500;                   // of a row that several ranks share
constexpr std::size_t kMarksMost = 200;
// Where a kind of work is drawn in its row: the middle of its strip, and its height.
constexpr std::array<double, kWorks> kMiddle = {5.5, 12.5, 16.5, 18.5};
constexpr std::array<int, kWorks> kStrip = {9, 5, 3, 1};

struct Row {
  std::string name;
  std::vector<int> ranks;  // drawn ones
};

std::vector<Row> rows_of(const std::vector<RankWork>& work, const std::vector<std::uint64_t>& courses) {
  std::map<int, std::vector<int>> standing_for;  // by drawn rank
  std::map<std::uint64_t, int> first;
  for (std::size_t rank = 0; rank < work.size(); ++rank) {
    if (!work[rank].drawn) continue;
    standing_for[int(rank)] = {int(rank)};
    if (rank < courses.size()) first.try_emplace(courses[rank], int(rank));
  }
  for (std::size_t rank = 0; rank < std::min(work.size(), courses.size()); ++rank) {
    const auto like = first.find(courses[rank]);
    if (!work[rank].drawn && like != first.end()) standing_for[like->second].push_back(int(rank));
  }
  const std::size_t each = (standing_for.size() + kRowsMost - 1) / kRowsMost;
  std::vector<Row> rows;
  std::size_t count = 0;
  for (const auto& [rank, others] : standing_for) {
    if (count++ % std::max<std::size_t>(each, 1) == 0) rows.emplace_back();
    Row& row = rows.back();
    row.ranks.push_back(rank);
    if (row.ranks.size() == 1)
      row.name = others.size() == 1 ? fmt::format("rank {}", rank)
                                    : fmt::format("rank {} and {} alike", rank, others.size() - 1);
    else
      row.name = fmt::format("ranks {}&ndash;{}", row.ranks.front(), rank);
  }
  return rows;
}

// The gap below which intervals are joined, so that the picture stays small.
TimeNs gap_of(const std::vector<RankWork>& work, const Axis& axis) {
  TimeNs gap = std::max<TimeNs>(1, TimeNs(axis.shortest()));
  for (;; gap *= 2) {
    std::size_t count = 0;
    for (const RankWork& rank : work) {
      for (const Intervals& intervals : rank.of) count += joined(intervals, gap).size();
    }
    if (count <= kIntervalsMost || gap > axis.end() - axis.begin()) return gap;
  }
}

std::string strips(const RankWork& rank, const Axis& axis, TimeNs gap) {
  std::string out;
  for (std::size_t work = 0; work < kWorks; ++work) {
    std::string path;
    for (const Interval& one : joined(rank.of[work], gap)) {
      const long from = std::lround(axis.x(double(one.begin))), to = std::lround(axis.x(double(one.end)));
      fmt::format_to(std::back_inserter(path), "M{} {}h{}", from, kMiddle[work], std::max(1L, to - from));
    }
    if (!path.empty())
      out += fmt::format("<path class=\"{}\" stroke-width=\"{}\" d=\"{}\"/>", kWorkClass[work], kStrip[work], path);
  }
  return out;
}

// The share of ranks that are at this work, by column.
std::vector<double> shares(const std::vector<RankWork>& work, const Row& row, std::size_t kind, const Axis& axis) {
  std::vector<double> share(kColumns);
  constexpr double kColumn = double(kTimelineUnits) / kColumns;
  for (const int rank : row.ranks) {
    for (const Interval& one : work[std::size_t(rank)].of[kind]) {
      const double from = axis.x(double(one.begin)) / kColumn, to = axis.x(double(one.end)) / kColumn;
      for (int i = std::max(0, int(from)); i < kColumns && i < to; ++i)
        share[std::size_t(i)] += std::max(0.0, std::min(to, double(i + 1)) - std::max(from, double(i)));
    }
  }
  for (double& one : share) one = std::min(1.0, one / double(row.ranks.size()));
  return share;
}

std::string areas(const std::vector<RankWork>& work, const Row& row, const Axis& axis) {
  constexpr int kUnits = kTimelineUnits / kColumns;
  std::string out;
  for (std::size_t kind = 0; kind < kWorks; ++kind) {
    const std::vector<double> share = shares(work, row, kind, axis);
    const double bottom = kMiddle[kind] + kStrip[kind] / 2.0;
    std::string path;
    double last = 0;
    for (int i = 0; i < kColumns; ++i) {
      const double height = std::round(share[std::size_t(i)] * kStrip[kind] * 10) / 10;
      if (height == last) continue;
      fmt::format_to(std::back_inserter(path), "H{}V{}", i * kUnits, bottom - height);
      last = height;
    }
    if (!path.empty())
      out += fmt::format("<path class=\"{}\" d=\"M0 {}{}H{}V{}z\"/>", kWorkClass[kind], bottom, path, kTimelineUnits,
                         bottom);
  }
  return out;
}

struct Drawing {
  std::string names, rows;
  int height = kRowHeight;
};

Drawing draw_rows(const std::vector<RankWork>& work, const std::vector<Row>& rows, const Axis& axis) {
  Drawing out;
  const TimeNs gap = gap_of(work, axis);
  int y = 0;
  for (const Row& row : rows) {
    const bool shared = row.ranks.size() > 1;
    out.names += fmt::format("<div style=\"height:{0}px;line-height:{0}px\">{1}</div>", kRowHeight, row.name);
    out.rows += fmt::format(
        "<g transform=\"translate(0,{})\"{} data-rank=\"{}\"><rect class=\"idle\" y=\"1\" width=\"{}\" "
        "height=\"{}\"/>{}</g>\n",
        y, shared ? " class=\"area\"" : "", row.ranks.front(), kTimelineUnits, kRowHeight - 2,
        shared ? areas(work, row, axis) : strips(work[std::size_t(row.ranks.front())], axis, gap));
    y += kRowHeight;
  }
  out.height = std::max(kRowHeight, y);
  return out;
}

// Numbered badges above the rows, in as many lines as their places need.
std::string badges(const std::vector<Mark>& marks, const Axis& axis) {
  constexpr double kApart = 0.04 * kTimelineUnits;
  constexpr int kLine = 20;
  std::vector<double> taken;  // the last x of each line
  std::string spans;
  for (std::size_t i = 0; i < marks.size(); ++i) {
    const double x = axis.x(marks[i].at_s * 1e9);
    std::size_t line = 0;
    while (line < taken.size() && x - taken[line] < kApart) ++line;
    if (line == taken.size()) taken.push_back(x);
    taken[line] = x;
    spans +=
        fmt::format("<span class=\"badge {}\" style=\"left:{:.3f}%;top:{}px\" data-x=\"{:.0f}\" title=\"{}\">{}</span>",
                    marks[i].kind, x / kTimelineUnits * 100, line * kLine, x, escaped(marks[i].text), i + 1);
  }
  if (spans.empty()) return "";
  return fmt::format("<div class=\"at marks\" aria-hidden=\"true\" style=\"height:{}px\">{}</div>",
                     taken.size() * kLine, spans);
}

std::string lines(const std::vector<Mark>& marks, const Axis& axis, int height) {
  std::string out;
  for (const Mark& mark : marks)
    out += fmt::format("<path class=\"m {}\" data-at-s=\"{}\" d=\"M{:.0f} 0V{}\"/>\n", mark.kind, mark.at,
                       axis.x(mark.at_s * 1e9), height);
  return out;
}

// Stretches that are drawn short: a veil, and their length at the axis.
std::string breaks(const Axis& axis, int height) {
  std::string out;
  for (const Axis::Break& one : axis.breaks())
    out +=
        fmt::format("<path class=\"break\" d=\"M{:.0f} 0H{:.0f}V{}H{:.0f}z\"/>\n", one.from, one.to, height, one.from);
  return out;
}

// Stretches of which the timeline keeps nothing.
std::string gone(const std::vector<sim::Timeline::LeftOut>& left_out, const Axis& axis, int height) {
  std::string out;
  for (const sim::Timeline::LeftOut& one : left_out)
    out += fmt::format("<path class=\"gone\" d=\"M{:.0f} 0H{:.0f}V{}H{:.0f}z\"/>\n", axis.x(double(one.begin)),
                       axis.x(double(one.end)), height, axis.x(double(one.begin)));
  return out;
}

std::string left_out_in_words(const sim::Timeline& timeline, const std::vector<sim::Timeline::LeftOut>& left_out) {
  if (timeline.forgotten() == 0) return "";
  constexpr std::size_t kMost = 20;
  std::string steps;
  for (std::size_t i = 0; i < left_out.size() && i < kMost; ++i) {
    const sim::Timeline::LeftOut& one = left_out[i];
    steps += fmt::format("{}{}{}", steps.empty() ? "" : ", ", one.whole ? "" : "a part of ",
                         one.first_step == one.last_step ? std::to_string(one.first_step)
                                                         : fmt::format("{}&ndash;{}", one.first_step, one.last_step));
  }
  if (left_out.size() > kMost) steps += fmt::format(" and {} more stretches", left_out.size() - kMost);
  return paragraph(
      fmt::format("The run had {} spans; {} of them are left out, and grey in the picture: of steps {}. Steps of "
                  "faults and recoveries stay as long as there is room.",
                  timeline.forgotten() + timeline.spans().size(), timeline.forgotten(), steps));
}

std::string breaks_in_words(const Axis& axis) {
  std::string text;
  for (const Axis::Break& one : axis.breaks())
    text += fmt::format("{}{}", text.empty() ? "" : ", ", seconds_shown(double(one.of.end - one.of.begin) / 1e9));
  return text.empty() ? "" : " Veiled: nothing begins or ends there, and the stretch is drawn short (" + text + ").";
}

std::string axis_labels(const Axis& axis) {
  constexpr int kParts = 4;
  std::string out = "<div class=\"at axis\">";
  for (int i = 0; i <= kParts; ++i) {
    const double part = double(i) / kParts;
    out += fmt::format("<span class=\"{}\" style=\"left:{}%\" data-p=\"{}\">{}</span>",
                       i == 0        ? "l"
                       : i == kParts ? "r"
                                     : "",
                       part * 100, part, seconds_shown(axis.time(part * kTimelineUnits) / 1e9, 6));
  }
  return out + "</div>";
}

std::string key(bool any_shared) {
  std::string out = "<ul class=\"key\">";
  for (std::size_t work = 0; work < kWorks; ++work) {
    out += fmt::format(
        "<li><svg width=\"14\" height=\"{0}\" aria-hidden=\"true\"><path class=\"{1}\" stroke-width=\"{0}\" "
        "d=\"M0 {2}h14\"/></svg>{3}</li>",
        std::max(3, kStrip[work]), kWorkClass[work], std::max(3, kStrip[work]) / 2.0, kWorkName[work]);
  }
  out +=
      "<li><svg width=\"14\" height=\"9\" aria-hidden=\"true\"><rect class=\"idle\" width=\"14\" height=\"9\"/></svg>"
      "idle</li>";
  if (any_shared) out += "<li>where ranks share a row, the height of a strip is the share of them</li>";
  return out + "</ul>";
}

std::string table_of(const std::vector<Mark>& marks, const char* time) {
  std::vector<Cells> rows;
  for (std::size_t i = 0; i < marks.size(); ++i)
    rows.push_back({fmt::format("<span class=\"badge {}\">{}</span>", marks[i].kind, i + 1), marks[i].at, marks[i].kind,
                    escaped(marks[i].text)});
  return rows.empty() ? "" : table("", {"mark", time, "what", "in words"}, rows);
}

constexpr const char* kButtons =
    "<div class=\"zoom\" role=\"group\" aria-label=\"Zoom\"><button data-do=\"in\">zoom in</button>"
    "<button data-do=\"out\">zoom out</button><button data-do=\"left\" aria-label=\"earlier\">&larr;</button>"
    "<button data-do=\"right\" aria-label=\"later\">&rarr;</button><button data-do=\"all\">all</button></div>";

// What is drawn, and of which clock.
struct Drawn {
  std::vector<RankWork> work;
  std::vector<std::uint64_t> courses;
  std::vector<sim::Timeline::LeftOut> left_out;
  double end_s = 0;
  std::string clock;    // "virtual time"
  std::string caption;  // its first sentence
};

struct Kept {
  std::vector<Mark> marks;
  std::string note;  // of those that are not
};
Kept first_of(const std::vector<Mark>& all) {
  Kept kept{{all.begin(), all.begin() + std::ptrdiff_t(std::min(all.size(), kMarksMost))}, ""};
  if (kept.marks.size() < all.size())
    kept.note = paragraph(fmt::format("{} more marks are in the JSON report.", all.size() - kept.marks.size()));
  return kept;
}

std::string figure(const Drawn& drawn, const std::vector<Mark>& marks, const std::string& note) {
  const std::vector<RankWork>& work = drawn.work;
  const std::vector<Row> rows = rows_of(work, drawn.courses);
  const Axis axis = axis_of(work, marks, drawn.end_s);
  const bool shared = std::any_of(rows.begin(), rows.end(), [](const Row& row) { return row.ranks.size() > 1; });
  const Drawing drawing = draw_rows(work, rows, axis);
  const std::string above = badges(marks, axis);
  std::string out = "<figure class=\"timeline\">" + key(shared) + kButtons;
  out += "<div class=\"tl\"><div class=\"names\">";
  const std::size_t height = above.find("height:");
  if (!above.empty()) out += "<div style=\"" + above.substr(height, above.find('"', height) - height) + "\"></div>";
  out += drawing.names + "</div><div class=\"plot\">" + above;
  out += fmt::format(
      "<svg viewBox=\"0 0 {} {}\" height=\"{}\" preserveAspectRatio=\"none\" tabindex=\"0\" role=\"img\" "
      "data-knots=\"{}\" aria-label=\"Timeline of {} ranks over {:.6g} seconds of {}, "
      "with {} marks that the table below lists\">\n{}{}</svg>",
      kTimelineUnits, drawing.height, drawing.height, axis.knots(), work.size(),
      double(axis.end() - axis.begin()) / 1e9, drawn.clock, marks.size(),
      drawing.rows + gone(drawn.left_out, axis, drawing.height) + breaks(axis, drawing.height),
      lines(marks, axis, drawing.height));
  out += axis_labels(axis) + "</div></div>";
  return out + "<figcaption>" + drawn.caption + " Ctrl and the wheel, + and - zoom; dragging and arrows move." +
         breaks_in_words(axis) + "</figcaption></figure>\n" + note + table_of(marks, (drawn.clock + ", s").c_str());
}

}  // namespace

std::string timeline_figure(const sim::Timeline* timeline, const std::vector<std::uint64_t>& courses,
                            const std::vector<Mark>& all_marks, double end_s) {
  const Kept kept = first_of(all_marks);
  if (timeline == nullptr) return table_of(kept.marks, "time, s") + kept.note;
  const Drawn drawn = {work_of(*timeline), courses, timeline->left_out(), end_s, "virtual time", "Virtual time."};
  return figure(drawn, kept.marks, kept.note + left_out_in_words(*timeline, drawn.left_out));
}

std::string timeline_of_work(const std::vector<RankWork>& work, const std::vector<Mark>& all_marks, double end_s) {
  const Kept kept = first_of(all_marks);
  const Drawn drawn = {work, {}, {}, end_s, "real time", "Time since the first rank began."};
  return figure(drawn, kept.marks, kept.note);
}

}  // namespace seeksim::harness::html
