#include "harness/html/report_page.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "harness/html/escape.h"
#include "harness/html/memory_chart.h"
#include "harness/html/page.h"
#include "harness/html/redact.h"
#include "harness/html/sections.h"
#include "harness/html/sweep_grid.h"
#include "harness/html/timeline.h"
#include "harness/html/waits.h"
#include "harness/report/story.h"

namespace seeksim::harness::html {
namespace {

std::string story_part(const RunRecord& run, const Redaction& redaction) {
  std::vector<Cells> rows;
  for (const StoryLine& line : story_lines(run)) {
    const std::size_t end = line.text.find('\n');  // below it: a wait-for graph, which has a part of its own
    rows.push_back({fmt::format("{:.6f}", double(line.at) / 1e9), escaped(redaction.of(line.text.substr(0, end)))});
  }
  constexpr std::size_t kMost = 200;
  std::string caption;
  if (rows.size() > kMost) {
    caption = fmt::format("{} lines; {} in the middle are left out", rows.size(), rows.size() - kMost);
    rows.erase(rows.begin() + kMost / 2, rows.end() - kMost / 2);
  }
  return rows.empty() ? "" : table(caption, {"virtual time, s", "what happened"}, rows);
}

std::string waits_part(const Json& report) {
  const std::string graph = text_member(report, "wait_for_graph");
  if (graph.empty()) return "";
  return paragraph("At the moment when nothing could progress but watchdogs:") + waits_figure(waits_of(graph));
}

std::string timeline_part(const PageInput& input, const Json& report) {
  if (input.run == nullptr && !member(report, "jobs_before").is_array()) return "";
  static const std::vector<std::uint64_t> kNone;
  const auto& courses =
      input.run != nullptr && input.run->alike && input.run->alike->classes > 0 ? input.run->alike->courses : kNone;
  std::string note;
  if (input.timeline == nullptr)
    note = paragraph("Ranks on processes keep no timeline; these are the moments that the report knows.");
  const std::string figure =
      timeline_figure(input.timeline, courses, marks_of(report), number_of(member(report, "virtual_s")));
  return figure.empty() ? "" : note + figure;
}

std::string memory_over_time(const PageInput& input, const Json& report) {
  if (input.timeline == nullptr) return "";
  const Axis axis = axis_of(work_of(*input.timeline), marks_of(report), number_of(member(report, "virtual_s")));
  return memory_figure(*input.timeline, axis, member(member(report, "memory"), "peak_bytes_per_rank_max"));
}

}  // namespace

std::string report_page(const PageInput& input) {
  const std::string name = text_member(input.report, "scenario");
  const Redaction redaction(input.redact, name, input.redact ? host_name() : "");
  const Json report = redaction.report(input.report);
  const bool sweep = member(report, "rows").is_array();
  Page page(text_member(report, "scenario"), sweep ? "Report of a sweep of seeksim" : "Report of a run of seeksim");
  page.section("verdict", "Verdict", verdict_part(report));
  page.section("problems", "Problems", problems_part(report));
  page.section("first-wrong", "The first wrong operation", names_part(report));
  page.section("red", "Red rows", sweep ? red_rows_part(report) : "");
  page.section("plan", "Fault plan", fault_plan_part(report));
  page.section("checks", "Checks", checks_part(report));
  page.section("processes", "Processes", processes_part(report));
  page.section("timeline", "Timeline of ranks", timeline_part(input, report));
  page.section("waits", "Who waits for whom", waits_part(report));
  page.section("story", "Story", input.run == nullptr ? "" : story_part(*input.run, redaction));
  page.section("curves", "Steps", curves_part(report, input.golden));
  page.section("memory", "Memory", memory_over_time(input, report) + memory_part(report));
  page.section("traffic", "Traffic", traffic_part(report));
  page.section("grid", "Rows by settings", sweep ? grid_part(report) : "");
  page.section("axes", "Counts by axis", sweep ? axes_part(report) : "");
  page.section("rows", "All rows", sweep ? all_rows_part(report) : "");
  const bool launched = member(report, "jobs_before").is_array();
  const std::string command =
      redaction.on() ? fmt::format("seeksim {} [path]", launched ? "launch" : "run") : input.command;
  page.section("again", "How to run it again", again_part(report, command));
  return page.text();
}

}  // namespace seeksim::harness::html
