#include "harness/torch/show/run_page.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include <nlohmann/json.hpp>

#include "harness/html/charts.h"
#include "harness/html/escape.h"
#include "harness/html/page.h"
#include "harness/html/timeline.h"
#include "harness/torch/show/spans.h"

namespace seeksim::harness::torch {
namespace {

using html::Cells;
using html::escaped;
using html::member;
using html::number_of;
using html::paragraph;
using html::seconds_shown;
using html::shown;
using html::text_member;
using pytorch::StepPhase;

std::string facts_part(const Json& report) {
  std::vector<Cells> rows = {
      {"script",
       "<code>" + escaped(fmt::format("{}", fmt::join(member(report, "command").get<Cells>(), " "))) + "</code>"},
      {"ranks", shown(member(report, "np"))},
      {"torch", shown(member(report, "torch"))},
      {"backend", shown(member(report, "backend"))},
      {"wall time", seconds_shown(number_of(member(report, "wall_s")))}};
  if (member(report, "stopped").is_string()) rows.push_back({"stopped", shown(member(report, "stopped"))});
  return html::table("", {"", ""}, rows);
}

std::string checks_part(const Json& report) {
  std::vector<Cells> rows;
  for (const Json& check : member(report, "checks"))
    rows.push_back({escaped(text_member(check, "name")),
                    member(check, "ok") == true ? "<span class=\"ok\">&#10003; holds</span>"
                                                : "<span class=\"no\">&#10007; red</span>",
                    escaped(text_member(check, "detail"))});
  return html::table("", {"check", "verdict", "what was found"}, rows);
}

// ---- what each rank did when ---------------------------------------------------------------------------------------

void add(html::Intervals& to, std::int64_t begin_ns, std::int64_t end_ns) {
  if (end_ns > begin_ns) to.push_back({begin_ns, end_ns});
}

// Loaders and checkpoints are drawn as copies; all else outside collectives as computing.
html::RankWork work_of(const RankSpans& spans) {
  html::RankWork work;
  work.drawn = true;
  for (const PhaseSpan& phase : spans.phases) {
    const bool files = phase.phase == StepPhase::data || phase.phase == StepPhase::checkpoint;
    if (phase.phase != StepPhase::init)
      add(work.of[files ? html::kCopies : html::kCompute], phase.begin_ns, phase.end_ns);
  }
  for (const CallSpan& call : spans.calls) add(work.of[html::kComm], call.begin_ns, call.end_ns);
  for (html::Intervals& intervals : work.of) {
    std::sort(intervals.begin(), intervals.end(),
              [](const html::Interval& a, const html::Interval& b) { return a.begin < b.begin; });
    intervals = html::joined(intervals, 1);
  }
  return work;
}

std::string timeline_part(const std::vector<RankSpans>& all) {
  std::vector<html::RankWork> work;
  std::vector<html::Mark> marks;
  std::int64_t end_ns = 0;
  for (const RankSpans& spans : all) {
    work.resize(std::max(work.size(), std::size_t(spans.rank) + 1));
    work[std::size_t(spans.rank)] = work_of(spans);
    end_ns = std::max(end_ns, spans.end_ns);
    for (const Moment& moment : spans.moments) {
      const bool fault = moment.what == Moment::What::fault;
      const double at_s = double(moment.at_ns) * 1e-9;
      marks.push_back({at_s, fmt::format("{:.3f}", at_s), fault ? "fault" : "detected",
                       fmt::format("rank {}: {}", spans.rank, moment.text)});
    }
  }
  std::stable_sort(marks.begin(), marks.end(), [](const auto& a, const auto& b) { return a.at_s < b.at_s; });
  return all.empty() ? "" : html::timeline_of_work(work, marks, double(end_ns) * 1e-9);
}

// Seconds of each phase, by rank, and the share of them in collectives.
std::string phases_part(const std::vector<RankSpans>& all) {
  constexpr std::array kShown = {StepPhase::data, StepPhase::forward, StepPhase::backward, StepPhase::optimizer,
                                 StepPhase::checkpoint};
  Cells headings = {"rank"};
  for (const StepPhase phase : kShown) headings.emplace_back(pytorch::name(phase));
  headings.emplace_back("in collectives");
  std::vector<Cells> rows;
  for (const RankSpans& spans : all) {
    Cells row = {std::to_string(spans.rank)};
    for (const StepPhase phase : kShown) {
      double s = 0;
      for (const PhaseSpan& span : spans.phases)
        if (span.phase == phase) s += double(span.end_ns - span.begin_ns) * 1e-9;
      row.push_back(seconds_shown(s));
    }
    double collectives_s = 0;
    for (const CallSpan& call : spans.calls)
      if (call.call->phase != StepPhase::init) collectives_s += double(call.end_ns - call.begin_ns) * 1e-9;
    row.push_back(seconds_shown(collectives_s));
    rows.push_back(std::move(row));
  }
  return rows.empty() ? ""
                      : html::table("Collectives may run beside a phase, in a thread of their own", headings, rows);
}

// ---- figures of the report -----------------------------------------------------------------------------------------

std::string waits_part(const Json& report) {
  const Json& found = member(report, "waits");
  if (!found.is_object()) return "";
  double most = 0;
  for (const Json& rank : member(found, "ranks")) most = std::max(most, number_of(member(rank, "kept_s")));
  std::vector<Cells> rows;
  for (std::size_t rank = 0; rank < member(found, "ranks").size(); ++rank) {
    const Json& one = member(found, "ranks")[rank];
    const double kept_s = number_of(member(one, "kept_s"));
    rows.push_back({std::to_string(rank), seconds_shown(kept_s), most > 0 ? html::bar(kept_s / most) : "",
                    shown(member(one, "came_last")), seconds_shown(number_of(member(one, "waited_s")))});
  }
  return html::table(fmt::format("Of {} collectives within {}", shown(member(found, "collectives")),
                                 seconds_shown(number_of(member(found, "span_s")))),
                     {"rank", "kept the others waiting", "", "times it came last", "waited itself"}, rows);
}

std::string losses_part(const Json& report) {
  html::Chart chart;
  chart.title = "loss";
  for (const Json& rank : member(report, "ranks")) {
    const Json& list = member(rank, "loss");
    if (!list.is_array() || list.empty()) continue;
    html::Series series;
    series.name = "rank " + shown(member(rank, "rank"));
    for (const Json& loss : list) series.values.push_back(number_of(loss));
    chart.series.push_back(std::move(series));
    if (chart.series.size() == 2) break;
  }
  const std::string picture = html::chart(chart);
  return picture.empty() ? "" : picture + paragraph("Of each backward pass, on the first ranks that have one.");
}

std::string faults_part(const Json& report) {
  std::vector<Cells> rows;
  for (const Json& fault : member(report, "faults"))
    rows.push_back({"<code>" + shown(member(fault, "rule")) + "</code>", shown(member(fault, "fired")),
                    shown(member(fault, "ranks"))});
  return rows.empty() ? "" : html::table("", {"rule", "fired", "on ranks"}, rows);
}

std::string processes_part(const Json& report) {
  std::vector<Cells> rows;
  for (const Json& process : member(report, "processes"))
    rows.push_back({shown(member(process, "rank")), shown(member(process, "exit_status")),
                    shown(member(process, "signal")), member(process, "ended_by_seeksim") == true ? "yes" : "",
                    seconds_shown(number_of(member(process, "after_s"))), shown(member(process, "last_words"))});
  return html::table("", {"rank", "exit status", "signal", "ended by seeksim", "after", "last words"}, rows);
}

}  // namespace

std::string run_page(const TorchRun& run, const Json& report, const std::string& command) {
  const std::vector<RankSpans> spans = spans_of(run);
  html::Page page(text_member(report, "scenario"), "a training script, run and judged by seeksim");
  const bool good = number_of(member(report, "exit_code")) == 0;
  page.section("verdict", "Verdict",
               html::verdict_box(good, good ? "PASS" : "FAIL", shown(member(report, "sentence"))) + facts_part(report));
  page.section("checks", "Checks", checks_part(report));
  page.section("timeline", "What each rank did when", timeline_part(spans));
  page.section("phases", "Time by phase", phases_part(spans));
  page.section("waits", "Who kept the others waiting", waits_part(report));
  page.section("loss", "Loss", losses_part(report));
  page.section("faults", "Faults", faults_part(report));
  page.section("processes", "Processes", processes_part(report));
  if (!command.empty()) page.section("again", "Again", "<pre>" + escaped(command) + "</pre>\n");
  return page.text();
}

}  // namespace seeksim::harness::torch
