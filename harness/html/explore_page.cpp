#include "harness/html/explore_page.h"

#include <fmt/format.h>

#include <algorithm>

#include <nlohmann/json.hpp>

#include "harness/html/charts.h"
#include "harness/html/escape.h"
#include "harness/html/page.h"
#include "harness/input/shell.h"

namespace seeksim::harness::html {
namespace {

// "rank_crash" of "scenarios/rank_crash.json".
std::string stem_of(const std::string& file) {
  const std::size_t slash = file.rfind('/');
  std::string stem = slash == std::string::npos ? file : file.substr(slash + 1);
  if (stem.ends_with(".json") && stem.size() > 5) stem.resize(stem.size() - 5);
  return stem;
}

std::string verdict_part(const Json& explored) {
  const Json& found = member(explored, "found");
  const std::size_t findings = found.is_array() ? found.size() : 0;
  std::string out = verdict_box(findings == 0, findings == 0 ? "PASS" : "FAIL",
                                fmt::format("{} of {} cases are red, {} finding{}", shown(member(explored, "red")),
                                            shown(member(explored, "cases")), findings, findings == 1 ? "" : "s"));
  out += paragraph(fmt::format("Strategy {}, seed {}, {} s of wall time.", shown(member(explored, "strategy")),
                               shown(member(explored, "seed")), shown(member(explored, "wall_s"))));
  if (text_member(explored, "strategy") == "enumerate")
    out += paragraph(member(explored, "complete") == true ? "Each fault at each place was tried."
                                                          : "The time was up before every place was tried.");
  return out;
}

// One finding: what it breaks, and what shows it.
std::string finding(const Json& one) {
  const std::string file = text_member(one, "file"), shrunk = text_member(one, "shrunk"),
                    schedule = text_member(one, "schedule");
  std::string commands = "seeksim run " + for_the_shell(file);
  if (!schedule.empty()) commands += fmt::format("\nseeksim run {} --schedule {}", for_the_shell(file), schedule);
  if (!shrunk.empty()) commands += "\nseeksim run " + for_the_shell(shrunk);
  std::string out = fmt::format("<h3>{}</h3>\n", escaped(text_member(one, "check")));
  out += paragraph(escaped(text_member(one, "why")));
  out += paragraph(fmt::format("Found {} time{}, first after {} s.", shown(member(one, "times")),
                               member(one, "times") == 1 ? "" : "s", shown(member(one, "after_s"))));
  if (member(one, "twin") == true)
    out += paragraph(member(one, "itself").is_null()
                         ? "The twin with a smaller model fails so; the scenario itself was not seen to."
                         : "The twin with a smaller model fails so, and the scenario itself with the same faults.");
  if (member(one, "shown") == false) out += paragraph("It does not fail the same way when it runs alone.");
  if (!shrunk.empty())
    out += paragraph(
        fmt::format("Shrunk in {} runs; the last command runs what is left.", shown(member(one, "shrink_runs"))));
  return out + "<pre>" + escaped(commands) + "</pre>\n";
}

std::string findings_part(const Json& explored) {
  std::string out;
  for (const Json& one : member(explored, "found")) out += finding(one);
  return out;
}

// Counts by name, the largest first.
std::string counts_part(const Json& counts, const std::string& caption, const Cells& headings) {
  if (!counts.is_object()) return "";
  std::vector<std::pair<std::string, const Json*>> all;
  for (const auto& [what, n] : counts.items()) all.emplace_back(what, &n);
  std::stable_sort(all.begin(), all.end(),
                   [](const auto& a, const auto& b) { return number_of(*a.second) > number_of(*b.second); });
  const double most = all.empty() ? 0 : number_of(*all.front().second);
  std::vector<Cells> rows;
  for (const auto& [what, n] : all)
    rows.push_back({escaped(what), shown(*n), bar(most > 0 ? number_of(*n) / most : 0)});
  return rows.empty() ? "" : table(caption, headings, rows);
}

std::string coverage_part(const Json& explored) {
  const Json& coverage = member(explored, "coverage");
  if (!coverage.is_object()) return "";
  return paragraph(fmt::format("{} pairs of operations of two ranks were seen, {} of them in both orders.",
                               shown(member(coverage, "pairs")), shown(member(coverage, "pairs_in_both_orders")))) +
         folded_part("Faults, by the operation and phase in which they struck",
                     counts_part(member(coverage, "struck"), "", {"fault, operation, phase", "times", ""})) +
         folded_part("What recovery came to do",
                     counts_part(member(coverage, "branches"), "", {"error, operation, verdict", "times", ""}));
}

std::string progress_part(const Json& explored) {
  const Json& progress = member(explored, "progress");
  if (!progress.is_array() || progress.empty()) return "";
  const double cases = number_of(member(progress.back(), "cases"));
  std::vector<Cells> rows;
  for (const Json& moment : progress) {
    const double done = number_of(member(moment, "cases"));
    rows.push_back({shown(member(moment, "after_s")), shown(member(moment, "cases")), shown(member(moment, "red")),
                    shown(member(moment, "findings")), bar(cases > 0 ? done / cases : 0)});
  }
  return table("", {"after, s", "cases", "red", "findings", ""}, rows);
}

}  // namespace

std::string explore_page(const Json& explored, const std::string& command) {
  Page page(stem_of(text_member(explored, "scenario")), "An exploration by seeksim");
  page.section("verdict", "Verdict", verdict_part(explored));
  page.section("findings", "Findings", findings_part(explored));
  page.section("tried", "What was tried", counts_part(member(explored, "by"), "", {"cases drawn by", "number", ""}));
  page.section("reached", "What was reached", coverage_part(explored));
  page.section("stops", "Stops that are allowed",
               counts_part(member(explored, "stops"), "", {"the run stopped because", "cases", ""}));
  page.section("unjudged", "Not judged",
               counts_part(member(explored, "unjudged"), "Cases in which a check had nothing to look at",
                           {"check", "cases", ""}));
  const Json& exhaustive = member(explored, "exhaustive");
  page.section("exhaustive", "The whole space",
               exhaustive.is_object() ? "<pre>" + escaped(exhaustive.dump(2)) + "</pre>\n" : "");
  page.section("progress", "Progress", progress_part(explored));
  page.section("again", "How to explore again", command.empty() ? "" : "<pre>" + escaped(command) + "</pre>\n");
  return page.text();
}

}  // namespace seeksim::harness::html
