#include "harness/explain/explain.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <regex>

#include <nlohmann/json.hpp>

#include "harness/explain/museum.h"
#include "harness/input/json_text.h"
#include "harness/input/problem.h"
#include "harness/loading/load.h"
#include "harness/run/forked.h"
#include "harness/run/planned_run.h"
#include "harness/scenario/variants.h"
#include "runtime/rules/bugs.h"

namespace seeksim::harness {
namespace {

constexpr std::size_t kShortlist = 24;
constexpr std::size_t kShown = 3;
constexpr std::size_t kWaitedShown = 8;
constexpr std::size_t kSignsAlike = 2;  // fewer are no likeness

std::string head_of(const std::string& check) { return check.substr(0, check.find(':')); }

std::set<std::string> red_heads(const Json& report) {
  std::set<std::string> red;
  for (const std::string& name : red_checks(report)) red.insert(head_of(name));
  return red;
}

// Why the run's values cannot be looked at is part of the answer, never the end of it.
Names named(const Scenario& scenario, const Json& report, double wall_limit_s) {
  try {
    return names_of(scenario, report, wall_limit_s);
  } catch (const BadInput& bad) {
    Names names;
    names.not_looked = bad.problems().front().what;
    return names;
  } catch (const std::runtime_error& error) {
    Names names;
    names.not_looked = error.what();
    return names;
  }
}

std::string curve_of(const Scenario& scenario, const Json& report, double wall_limit_s) {
  if (is_of_shapes(scenario) || !report.contains("loss")) return {};
  try {
    const Golden golden = run_golden(without_quirks(scenario), "", wall_limit_s);
    return compare_curves(report.at("loss"), Json(golden.loss)).text;
  } catch (const std::runtime_error&) {
    return {};
  }
}

// ---- the museum ----------------------------------------------------------------------------------------------------

// Checks that an exhibit says must fail.
std::set<std::string> expected_red(const Json& exhibit) {
  std::set<std::string> red;
  const Json expect = exhibit.value("expect", Json());
  if (!expect.is_object() || !expect.contains("check_fails")) return red;
  const Json& fails = expect["check_fails"];
  if (fails.is_string()) return {head_of(fails)};
  for (const Json& one : fails) red.insert(head_of(one));
  return red;
}

std::size_t in_common(const std::set<std::string>& a, const std::set<std::string>& b) {
  return std::size_t(std::count_if(a.begin(), a.end(), [&b](const std::string& one) { return b.count(one) > 0; }));
}

double share_of(const std::set<std::string>& a, const std::set<std::string>& b) {
  const std::size_t both = in_common(a, b), any = a.size() + b.size() - both;
  return any == 0 ? 0 : double(both) / double(any);
}

void add_settings(const std::string& path, const Json& value, std::set<std::string>& settings) {
  if (!value.is_object()) {
    settings.insert(path + '=' + value.dump());
    return;
  }
  for (auto it = value.begin(); it != value.end(); ++it) add_settings(path + '/' + it.key(), it.value(), settings);
}

// "world/tensor=2" and so on: how a run is set up, without what is planted in it, told or asked of it.
std::set<std::string> settings_of(const Scenario& scenario) {
  constexpr std::string_view kLeftOut[] = {"$schema", "name",   "why",    "museum", "bug",
                                           "quirks",  "faults", "checks", "expect"};
  std::set<std::string> settings;
  const Json all = to_json(scenario);
  for (auto it = all.begin(); it != all.end(); ++it) {
    const bool tells = std::find(std::begin(kLeftOut), std::end(kLeftOut), it.key()) == std::end(kLeftOut);
    if (tells) add_settings(it.key(), it.value(), settings);
  }
  return settings;
}

// Those whose checks are most like these, and among them those that are set up most alike, are run, to see the rest.
// The scenario itself is not like itself.
std::vector<LikeExhibit> look_alikes(const Scenario& scenario, const Signature& run, double wall_limit_s) {
  const std::set<std::string> settings = settings_of(scenario);
  std::vector<std::pair<std::pair<double, double>, MuseumExhibit>> candidates;
  for (MuseumExhibit& one : museum_exhibits({})) {
    const double share = share_of(run.red, expected_red(one.json));
    if (share == 0 || one.json.value("name", "") == scenario.name) continue;
    const Scenario other = load_scenario_text(dump(one.json), one.file);
    candidates.push_back({{share, share_of(settings, settings_of(other))}, std::move(one)});
  }
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  candidates.resize(std::min(candidates.size(), kShortlist));
  std::vector<LikeExhibit> all;
  for (const auto& [share, exhibit] : candidates) {
    const Scenario other = load_scenario_text(dump(exhibit.json), exhibit.file);
    RunOptions quiet;
    quiet.wall_limit_s = wall_limit_s;
    const Outcome outcome =
        guarded(exhibit.file, "", [&] { return run_scenario(other, quiet, [](std::string_view) {}); });
    const Signature shown = signature_of(outcome.report, named(other, outcome.report, wall_limit_s));
    LikeExhibit like{exhibit.file, other.name, common_signs(run, shown), exhibit.json.at("museum")};
    if (like.signs.size() >= kSignsAlike) all.push_back(std::move(like));
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const LikeExhibit& a, const LikeExhibit& b) { return a.signs.size() > b.signs.size(); });
  all.resize(std::min(all.size(), kShown));
  return all;
}

// ---- causes --------------------------------------------------------------------------------------------------------

std::vector<std::string> injected_in(const Json& report) {
  std::vector<std::string> injected;
  for (const Json& fault : report.value("faults", Json::array())) {
    if (fault.value("fired", 0) > 0)
      injected.push_back(fmt::format("{}, {} times", fault.value("rule", ""), fault.value("fired", 0)));
  }
  return injected;
}

std::vector<std::string> planted_in(const Scenario& scenario) {
  std::vector<std::string> planted;
  const runtime::PlantedBug& bug = scenario.train.bug;
  if (!bug.is(runtime::Bug::none)) {
    std::string does;
    for (const runtime::BugInfo& one : runtime::bug_catalogue()) {
      if (one.bug == bug.bug) does = one.does;
    }
    planted.push_back(fmt::format("the bug {}: {}", text(bug), does));
  }
  for (const std::string& quirk : quirk_names(scenario.train.definition.quirks))
    planted.push_back("the quirk " + quirk);
  return planted;
}

std::vector<std::string> waited_in(const Json& report) {
  std::vector<std::string> waited;
  for (const Json& analysis : report.value("analysis", Json::array())) {
    if (waited.size() < kWaitedShown) waited.push_back(analysis.value("text", ""));
  }
  return waited;
}

std::string end_of(const Json& report) {
  if (report.contains("stopped") && report.at("stopped").is_string())
    return "the job ends: " + report.at("stopped").get<std::string>();
  if (report.value("verdict", "") == "no_progress") return "the job hangs without an error";
  if (!report.value("recoveries", Json::array()).empty()) return "training completes, after recoveries";
  return "training completes without an error";
}

std::string first_text(const Names& n) {
  const std::string text = names_text(n);
  if (n.culprit || n.names_operation()) return text;
  if (!n.not_looked.empty())
    return fmt::format("  {:<10}values were not held against the golden's: {}\n", "first", n.not_looked) + text;
  return fmt::format("  {:<10}no operation: of {} values that have their like in the golden none differs{}\n", "first",
                     n.compared, n.check.empty() ? "" : "; " + n.check + " tells what is wrong") +
         text;
}

}  // namespace

Signature signature_of(const Json& report, const Names& names) {
  Signature s;
  s.red = red_heads(report);
  s.mistake = names.mistake;
  if (!names.names_operation()) return s;
  s.operation = names.phase + ' ' + names.kind;
  s.family = std::regex_replace(names.tensor, std::regex(R"(\.\d+\.)"), ".*.");
  return s;
}

std::vector<std::string> common_signs(const Signature& a, const Signature& b) {
  std::vector<std::string> signs;
  if (!a.operation.empty() && a.operation == b.operation) signs.push_back("same operation, " + a.operation);
  if (!a.family.empty() && a.family == b.family) signs.push_back("same tensor, " + a.family);
  if (a.mistake != Mistake::unknown && a.mistake == b.mistake)
    signs.push_back("same kind, " + std::string(name(a.mistake)));
  if (!a.red.empty() && a.red == b.red) signs.push_back(fmt::format("same checks, {}", fmt::join(a.red, " and ")));
  return signs;
}

Explanation explain(const Scenario& scenario, const Json& report, double wall_limit_s) {
  Explanation all;
  for (const Json& check : report.value("checks", Json::array())) {
    if (!check.value("ok", true))
      all.red.push_back(fmt::format("{}: {}", check.value("name", ""), check.value("detail", "")));
  }
  if (all.red.empty() && report.value("verdict", "") != "no_progress") return all;
  all.names = named(scenario, report, wall_limit_s);
  all.waited = waited_in(report);
  all.injected = injected_in(report);
  all.planted = planted_in(scenario);
  all.curve = curve_of(scenario, report, wall_limit_s);
  all.end = end_of(report);
  all.exhibits = look_alikes(scenario, signature_of(report, all.names), wall_limit_s);
  return all;
}

std::string explanation_text(const Explanation& e, const Style& style) {
  if (e.red.empty() && e.end.empty()) return "no check failed: there is nothing to explain\n";
  std::string out = style.bold("Why it failed") + '\n' + first_text(e.names);
  const auto section = [&out](const char* title, const std::vector<std::string>& lines) {
    for (std::size_t i = 0; i < lines.size(); ++i) out += fmt::format("  {:<10}{}\n", i == 0 ? title : "", lines[i]);
  };
  section("failed", e.red);
  section("waited", e.waited);
  section("injected", e.injected);
  section("planted", e.planted);
  section("user sees", {e.end, "visible in the loss curve: " + (e.curve.empty() ? "not compared" : e.curve)});
  if (e.exhibits.empty()) section("alike", {"no exhibit of the museum shows two signs of this"});
  for (const LikeExhibit& one : e.exhibits) {
    section(&one == e.exhibits.data() ? "alike" : "",
            {fmt::format("{} ({})", style.bold(one.name), fmt::join(one.signs, "; ")),
             "symptom   " + one.museum.value("symptom", ""), "fix       " + one.museum.value("fix", ""),
             "seen in   " + one.museum.value("source", "")});
  }
  return out;
}

Json explanation_json(const Explanation& e) {
  Json alike = Json::array();
  for (const LikeExhibit& one : e.exhibits)
    alike.push_back({{"exhibit", one.name}, {"file", one.file}, {"signs", one.signs}});
  return {{"red", e.red},         {"names", names_json(e.names)},
          {"waited", e.waited},   {"injected", e.injected},
          {"planted", e.planted}, {"end", e.end},
          {"curve", e.curve},     {"alike", alike}};
}

namespace {

// What a child makes, or where it came to no end why.
RunOptions::Page page_aside(const char* what, const std::function<RunOptions::Page()>& make) {
  Forked work;
  work.count = 1;
  work.processes = 1;
  work.name = [&](std::size_t) { return std::string(what); };
  work.done = [](std::size_t, const std::string&, const Outcome&) {};
  work.run = [&](std::size_t, const Print&) {
    return guarded(what, "", [&] {
      const RunOptions::Page page = make();
      return Outcome{ExitStatus::as_expected, what, {{"text", page.text}, {"json", page.json}}, {}};
    });
  };
  const Outcome outcome = run_forked(work).front();
  if (outcome.status == ExitStatus::as_expected) return {outcome.report.at("text"), outcome.report.at("json")};
  const std::string why = outcome.problems.empty() ? "it came to no end" : outcome.problems.front();
  return {fmt::format("  {:<10}not known: to run it again with its values watched failed: {}\n", "first", why),
          {{"failed", why}}};
}

}  // namespace

RunOptions::Page explain_aside(const Scenario& scenario, const Json& report, double wall_limit_s, const Style& style) {
  return page_aside("the explanation", [&]() -> RunOptions::Page {
    const Explanation why = explain(scenario, report, wall_limit_s);
    return {explanation_text(why, style), explanation_json(why)};
  });
}

RunOptions::Page name_aside(const Scenario& scenario, const Json& report, double wall_limit_s) {
  return page_aside("the search for the first wrong operation", [&]() -> RunOptions::Page {
    const Names names = named(scenario, report, wall_limit_s);
    return {names_text(names), names_json(names)};
  });
}

}  // namespace seeksim::harness
