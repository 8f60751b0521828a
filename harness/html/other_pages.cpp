#include "harness/html/other_pages.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include <nlohmann/json.hpp>

#include "harness/html/charts.h"
#include "harness/html/escape.h"
#include "harness/html/page.h"
#include "harness/html/waits.h"

namespace seeksim::harness::html {
namespace {

std::string again(const std::string& command) {
  return command.empty() ? ""
                         : paragraph("This command makes the page again:") + "<pre>" + escaped(command) + "</pre>\n";
}

std::string list_of(const Json& lines) {
  std::string out;
  for (const Json& line : lines) out += "<li>" + shown(line) + "</li>\n";
  return out.empty() ? "" : "<ul>\n" + out + "</ul>\n";
}

// ---- a study ------------------------------------------------------------------------------------------------------

std::string percent(const Json& estimate) {
  const double mean = number_of(member(estimate, "mean")), low = number_of(member(estimate, "low")),
               high = number_of(member(estimate, "high"));
  return fmt::format("{:.2f} % [{:.2f}, {:.2f}]", 100 * mean, 100 * low, 100 * high);
}

std::string settings_of(const Json& policy) {
  std::vector<std::string> all;
  for (const auto& [key, value] : member(policy, "settings").items())
    all.push_back(fmt::format("{} = {}", escaped(key), shown(value)));
  return all.empty() ? "the study" : fmt::format("{}", fmt::join(all, ", "));
}

std::string checks_of(const Json& checks) {
  std::vector<Cells> rows;
  for (const Json& check : checks)
    rows.push_back({escaped(text_member(check, "check")),
                    member(check, "ok") == true ? "<span class=\"ok\">&#10003; holds</span>"
                                                : "<span class=\"no\">&#10007; red</span>",
                    escaped(text_member(check, "detail"))});
  return rows.empty() ? "" : table("", {"check", "verdict", "what was found"}, rows);
}

std::string policies_part(const Json& study) {
  std::vector<Cells> rows;
  for (const Json& policy : member(study, "policies")) {
    const Json& figures = member(policy, "figures");
    rows.push_back({settings_of(policy), percent(member(figures, "goodput")),
                    fmt::format("{:.1f}", number_of(member(member(figures, "interruptions"), "mean"))),
                    std::to_string(member(policy, "campaigns").size())});
  }
  return table("Means over campaigns, with the interval that holds the mean 19 times in 20",
               {"policy", "goodput", "stops a campaign", "campaigns"}, rows);
}

std::string causes_part(const Json& study) {
  std::vector<Cells> rows;
  for (const Json& policy : member(study, "policies")) {
    for (const auto& [cause, share] : member(policy, "time").items()) {
      const double mean = number_of(member(share, "mean"));
      if (mean > 0) rows.push_back({settings_of(policy), escaped(cause), percent(share), bar(mean)});
    }
  }
  return table("Shares of all time", {"policy", "time that is", "share", ""}, rows);
}

// How likely the job runs for so long: the curves as a table, each fourth class of lengths.
std::string survival_part(const Json& study) {
  constexpr std::size_t kEach = 4;
  std::size_t longest = 0;
  const Json* of_longest = nullptr;
  for (const Json& policy : member(study, "policies")) {
    const Json& curve = member(policy, "survival");
    if (curve.size() <= longest) continue;
    longest = curve.size();
    of_longest = &curve;
  }
  if (of_longest == nullptr) return "";
  Cells headings = {"policy"};
  for (std::size_t i = 0; i < longest; i += kEach)
    headings.push_back(fmt::format("{:.3g} h", number_of(member((*of_longest)[i], "hours"))));
  std::vector<Cells> rows;
  for (const Json& policy : member(study, "policies")) {
    Cells row = {settings_of(policy)};
    const Json& curve = member(policy, "survival");
    for (std::size_t i = 0; i < longest; i += kEach)
      row.push_back(i < curve.size() ? fmt::format("{:.1f} %", 100 * number_of(member(curve[i], "share"))) : "&ndash;");
    rows.push_back(std::move(row));
  }
  return table(
      "The share of runs that go on for at least so long without an unplanned stop; those that the end of the "
      "campaign cut off count by a life table",
      headings, rows);
}

// ---- a plan -------------------------------------------------------------------------------------------------------

std::string candidates_part(const Json& plan) {
  bool on_platform = false;
  for (const Json& one : member(plan, "candidates")) on_platform |= member(one, "platform").is_object();
  Cells head = {"configuration", "seeksim's ledger", "DeepSpeed's, by formulas", "fits", "on the host", "a step"};
  constexpr std::ptrdiff_t kPlatform = 3;
  if (on_platform) head.insert(head.begin() + kPlatform, "the platform's");
  std::vector<Cells> rows;
  for (const Json& one : member(plan, "candidates")) {
    Cells cells(head.size());
    cells[0] = escaped(text_member(one, "name"));
    const Json& refused = member(one, "refused");
    if (refused.is_string()) {
      cells[1] = "refused: " + shown(refused);
      rows.push_back(std::move(cells));
      continue;
    }
    cells = {cells[0],
             bytes_shown(member(one, "peak_bytes_per_rank_max")),
             bytes_shown(member(member(one, "deepspeed"), "bytes")),
             member(one, "fits") == true ? "yes" : "no",
             bytes_shown(member(one, "host_peak_bytes_per_rank_max")),
             seconds_shown(number_of(member(one, "step_s")))};
    const Json& there = member(one, "platform");
    if (on_platform)
      cells.insert(cells.begin() + kPlatform, there.is_object() ? bytes_shown(member(there, "bytes")) : "unknown");
    rows.push_back(std::move(cells));
  }
  return table("Bytes of the rank that needs most", head, rows);
}

const Json& chosen_of(const Json& plan) {
  const Json& candidates = member(plan, "candidates");
  for (const char* key : {"recommended", "closest"}) {
    const Json& place = member(plan, key);
    if (place.is_number_integer() && place.get<std::int64_t>() >= 0 && place.get<std::uint64_t>() < candidates.size())
      return candidates[place.get<std::size_t>()];
  }
  static const Json kNone;
  return kNone;
}

std::string ledger_part(const Json& plan) {
  const Json& chosen = chosen_of(plan);
  const Json& at_peak = member(chosen, "at_peak");
  if (!at_peak.is_object()) return "";
  double largest = 0;
  for (const auto& [tag, bytes] : at_peak.items()) largest = std::max(largest, number_of(bytes));
  std::vector<Cells> rows;
  for (const auto& [tag, bytes] : at_peak.items())
    rows.push_back({escaped(tag), bytes_shown(bytes), shown(bytes), bar(largest > 0 ? number_of(bytes) / largest : 0)});
  std::string out = table("seeksim: what a rank holds at its peak", {"tag", "bytes", "exactly", ""}, rows);
  const std::pair<const char*, const char*> estimates[] = {
      {"deepspeed", "DeepSpeed with NCCL and fused kernels"},
      {"platform", "The platform's stack, calibrated: what a GPU holds at its peak"}};
  for (const auto& [whose, title] : estimates) {
    rows.clear();
    for (const Json& line : member(member(chosen, whose), "lines"))
      rows.push_back({escaped(text_member(line, "name")), bytes_shown(member(line, "bytes")),
                      escaped(text_member(line, "formula"))});
    if (!rows.empty()) out += table(title, {"line", "bytes", "by"}, rows);
  }
  return paragraph(escaped(text_member(chosen, "name")) + ":") + out;
}

std::string verdict_of(const Json& plan) {
  const Json& chosen = chosen_of(plan);
  const bool fits = member(plan, "recommended").is_number();
  std::string out =
      verdict_box(fits, fits ? "FITS" : "NO CONFIGURATION FITS",
                  fmt::format("{}: {}", fits ? "recommended" : "the closest is", escaped(text_member(chosen, "name"))));
  out += paragraph(fmt::format("{} GPUs on {} nodes, {} each; {} parameters.", shown(member(plan, "gpus")),
                               shown(member(plan, "nodes")), bytes_shown(member(plan, "memory_bytes")),
                               shown(member(plan, "parameters"))));
  const Json& patch = member(plan, "patch");
  if (patch.is_object() && !patch.empty())
    out += paragraph("To be merged into the ds_config:") + "<pre>" + escaped(patch.dump(2)) + "</pre>\n";
  return out;
}

// ---- a hang -------------------------------------------------------------------------------------------------------

std::string ranks_shown(const Json& ranks) {
  std::vector<std::string> all;
  for (const Json& rank : ranks) all.push_back(rank.dump());
  return fmt::format("{} {}", all.size() == 1 ? "rank" : "ranks", fmt::join(all, ", "));
}

// Who waits for whom, where ranks have not come.
std::string graph_part(const Json& hang) {
  std::vector<std::string> lines;
  for (const Json& trouble : member(hang, "troubles")) {
    Json whom = Json::array();
    for (const char* key : {"absent", "no_dump"}) {
      for (const Json& rank : member(trouble, key)) whom.push_back(rank);
    }
    const Json& waiting = member(trouble, "waiting");
    if (!waiting.is_array() || waiting.empty() || whom.empty()) continue;
    lines.push_back(fmt::format("{}: {} #{} of group {} waits for {}", ranks_shown(waiting),
                                text_member(trouble, "operation"), member(trouble, "number").dump(),
                                text_member(trouble, "group"), ranks_shown(whom)));
  }
  return lines.empty() ? "" : waits_figure(lines);
}

std::string waiting_part(const Json& hang) {
  std::vector<Cells> rows;
  for (const Json& one : member(hang, "waiting"))
    rows.push_back({"rank " + shown(member(one, "rank")), escaped(text_member(one, "operation")),
                    shown(member(one, "number")), escaped(text_member(one, "group")),
                    escaped(text_member(one, "sizes")), escaped(text_member(one, "frame"))});
  return rows.empty() ? "" : table("", {"", "waits in", "number", "group", "sizes", "at"}, rows);
}

std::string reproduction_part(const Json& hang) {
  const Json& again = member(hang, "reproduction");
  if (!again.is_object()) return "";
  std::vector<Cells> rows;
  for (const Json& one : member(again, "ranks"))
    rows.push_back({"rank " + shown(member(one, "rank")), escaped(text_member(one, "job")),
                    escaped(text_member(one, "simulation")), member(one, "same") == true ? "" : "otherwise"});
  return paragraph(fmt::format("{}: {}", member(again, "same") == true ? "Reproduced" : "Not reproduced",
                               escaped(text_member(again, "cause")))) +
         table("", {"", "in the job", "simulated", ""}, rows);
}

}  // namespace

std::string study_page(const Json& study, const std::vector<std::string>& pictures, const std::string& command) {
  Page page(text_member(study, "study"), "A study of campaigns by seeksim");
  page.section(
      "verdict", "Verdict",
      verdict_box(member(study, "exit_code") == Json(0), member(study, "exit_code") == Json(0) ? "PASS" : "FAIL",
                  fmt::format("{} policies; campaigns of {:g} h", member(study, "policies").size(),
                              number_of(member(study, "hours")))) +
          checks_of(member(study, "checks")));
  std::string drawn;
  for (const std::string& picture : pictures) drawn += "<figure class=\"wide\">" + picture + "</figure>\n";
  page.section("pictures", "Goodput, and what it is lost to", drawn);
  page.section("policies", "Policies", policies_part(study));
  page.section("causes", "Time by cause", causes_part(study));
  page.section("survival", "How long the job runs", survival_part(study));
  page.section("again", "How to run it again", again(command));
  return page.text();
}

std::string plan_page(const Json& plan, const std::string& command) {
  Page page("Which configuration fits?", "A plan by seeksim");
  page.section("verdict", "Verdict", verdict_of(plan));
  page.section("candidates", "Configurations", candidates_part(plan));
  page.section("ledger", "What the memory holds", ledger_part(plan));
  page.section("again", "How to run it again", again(command));
  return page.text();
}

std::string hang_page(const Json& hang, const std::string& command) {
  Page page(text_member(hang, "headline"), "What flight recorders or logs say about a hang");
  page.section("verdict", "Verdict", paragraph(escaped(text_member(hang, "verdict"))));
  page.section("graph", "Who waits for whom", graph_part(hang));
  page.section("waiting", "Where each rank waits", waiting_part(hang));
  page.section("certain", "What is certain", list_of(member(hang, "certain")));
  page.section("likely", "What is likely", list_of(member(hang, "likely")));
  page.section("unknown", "What cannot be known", list_of(member(hang, "unknown")));
  page.section("next", "What would tell more next time", list_of(member(hang, "next_time")));
  page.section("reproduction", "The same hang on simulated ranks", reproduction_part(hang));
  page.section("again", "How to run it again", again(command));
  return page.text();
}

}  // namespace seeksim::harness::html
