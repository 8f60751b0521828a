// Curves by step, memory by tag, traffic.
#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include <nlohmann/json.hpp>

#include "harness/html/charts.h"
#include "harness/html/escape.h"
#include "harness/html/page.h"
#include "harness/html/sections.h"

namespace seeksim::harness::html {
namespace {

constexpr std::size_t kStepsInTheTable = 400;

std::vector<double> values_of(const Json& list) {
  std::vector<double> values;
  for (const Json& one : list) values.push_back(number_of(one));
  return values;
}

// A golden's curve, as far as the run came.
Series golden_series(const std::vector<float>& values, std::size_t steps) {
  Series series{"golden (one rank)", {}};
  for (std::size_t i = 0; i < std::min(steps, values.size()); ++i) series.values.push_back(double(values[i]));
  return series;
}

std::string curve(const char* title, const Json& mine, const std::vector<float>* golden) {
  Chart wanted{title, "", {{"this run", values_of(mine)}}};
  if (golden != nullptr && !golden->empty()) wanted.series.push_back(golden_series(*golden, mine.size()));
  return chart(wanted);
}

// Virtual time between commits of steps.
std::vector<double> step_times(const Json& committed) {
  std::vector<double> times;
  for (std::size_t i = 1; i < committed.size(); ++i)
    times.push_back(number_of(committed[i]) - number_of(committed[i - 1]));
  if (!times.empty()) times.insert(times.begin(), std::numeric_limits<double>::quiet_NaN());
  return times;
}

std::string numbers_by_step(const Json& report, const Golden* golden) {
  static constexpr const char* kColumns[] = {"loss", "grad_norm", "loss_scale", "lr", "skipped", "committed_s"};
  const std::size_t steps = member(report, "loss").size();
  std::vector<Cells> rows;
  for (std::size_t i = 0; i < steps && i < kStepsInTheTable; ++i) {
    Cells row = {std::to_string(i)};
    for (const char* key : kColumns) {
      const Json& list = member(report, key);
      row.push_back(i < list.size() ? shown(list[i]) : "&ndash;");
    }
    if (golden != nullptr) row.push_back(i < golden->loss.size() ? shown(Json(double(golden->loss[i]))) : "&ndash;");
    rows.push_back(std::move(row));
  }
  Cells headings = {"step", "loss", "gradient norm", "loss scale", "learning rate", "skipped", "committed at, s"};
  if (golden != nullptr) headings.emplace_back("golden's loss");
  const std::string caption =
      steps > kStepsInTheTable ? fmt::format("the first {} of {} steps", kStepsInTheTable, steps) : "";
  return folded_part("the numbers of each step", table(caption, headings, rows));
}

bool varies(const Json& list) {
  return std::any_of(list.begin(), list.end(), [&](const Json& one) { return one != list[0]; });
}

}  // namespace

std::string curves_part(const Json& report, const Golden* golden) {
  const Json& loss = member(report, "loss");
  if (!loss.is_array() || loss.empty()) return "";
  std::string charts = curve("Loss", loss, golden == nullptr ? nullptr : &golden->loss);
  charts += curve("Gradient norm", member(report, "grad_norm"), golden == nullptr ? nullptr : &golden->grad_norm);
  if (varies(member(report, "loss_scale"))) charts += curve("Loss scale", member(report, "loss_scale"), nullptr);
  charts += chart({"Time since the step before",
                   on_processes(report) ? "s" : "s, virtual",
                   {{"this run", step_times(member(report, "committed_s"))}}});
  std::string note;
  if (member(report, "numerics") == Json("shapes")) note = paragraph("A run of shapes has no losses and no norms.");
  return note + "<div class=\"charts\">" + charts + "</div>\n" + numbers_by_step(report, golden);
}

std::string memory_part(const Json& report) {
  const Json& memory = member(report, "memory");
  if (!memory.is_object()) return "";
  const Json& peak = member(memory, "peak_bytes_per_rank_max");
  std::string out = paragraph(fmt::format("At most {} ({} bytes) on a rank's device.", bytes_shown(peak), shown(peak)));
  const auto by_tag = [&](const char* caption, const Json& tags, bool at_peak) {
    double most = 0;
    for (const Json& bytes : tags) most = std::max(most, number_of(bytes));
    std::vector<Cells> rows;
    for (const auto& [tag, bytes] : tags.items()) {
      const Json& then = member(member(memory, "at_peak"), tag.c_str());
      if (number_of(bytes) == 0) continue;
      Cells row = {escaped(tag), bar(number_of(bytes) / most), bytes_shown(bytes), shown(bytes)};
      if (at_peak) row.push_back(shown(then));
      row.push_back(shown(member(member(memory, "what"), tag.c_str())));
      rows.push_back(std::move(row));
    }
    Cells headings = {"tag", "share", "peak", "bytes"};
    if (at_peak) headings.emplace_back("bytes at the peak");
    headings.emplace_back("what it holds");
    return rows.empty() ? "" : table(caption, headings, rows);
  };
  const Json &device = member(memory, "by_tag"), &host = member(memory, "host_by_tag");
  if (device.is_object()) out += by_tag("device, the rank that needed most", device, memory.contains("at_peak"));
  if (host.is_object()) out += by_tag("host, the rank that needed most", host, false);
  return out;
}

std::string traffic_part(const Json& report) {
  const Json& comm = member(report, "comm");
  std::vector<Cells> rows;
  double most = 0;
  if (comm.is_object()) {
    for (const auto& [kind, use] : comm.items())
      most = std::max(most, number_of(member(use, "bytes_sent_per_rank_max")));
    for (const auto& [kind, use] : comm.items()) {
      const Json& bytes = member(use, "bytes_sent_per_rank_max");
      rows.push_back({escaped(kind), shown(member(use, "calls")), bar(most > 0 ? number_of(bytes) / most : 0),
                      bytes_shown(bytes), shown(bytes)});
    }
  }
  std::string out;
  if (!rows.empty())
    out += table("calls of all ranks; bytes that the busiest rank sent",
                 {"operation", "calls", "share", "sent", "bytes"}, rows);
  const auto overlap = [&](const char* key, const char* what) {
    const Json& use = member(report, key);
    if (!use.is_object() || number_of(member(use, "in_flight_s")) == 0) return;
    out += paragraph(fmt::format("{}: {} s in flight over all ranks, {} s of it behind compute (share {}).", what,
                                 shown(member(use, "in_flight_s")), shown(member(use, "hidden_s")),
                                 shown(member(use, "share"))));
  };
  overlap("comm_overlap", "Communication");
  overlap("copy_overlap", "Copies between host and device");
  rows.clear();
  const Json& kinds = member(member(report, "files"), "by_kind");
  if (kinds.is_object()) {
    for (const auto& [kind, use] : kinds.items())
      rows.push_back({escaped(kind), shown(member(use, "read")), shown(member(use, "written"))});
  }
  if (!rows.empty()) out += table("files, bytes of all ranks", {"kind", "read", "written"}, rows);
  return out;
}

}  // namespace seeksim::harness::html
