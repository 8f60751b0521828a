#include "harness/explain/explain.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include <nlohmann/json.hpp>

#include "harness/explain/museum.h"
#include "harness/input/json_text.h"
#include "harness/input/problem.h"
#include "harness/loading/load.h"
#include "harness/run/planned_run.h"
#include "harness/scenario/variants.h"

namespace seeksim::harness {
namespace {

constexpr std::size_t kShortlist = 12;
constexpr std::size_t kShown = 3;
constexpr double kAlike = 0.4;  // less is no likeness

std::string head_of(const std::string& check) { return check.substr(0, check.find(':')); }

std::set<std::string> setting_of(const Scenario& scenario) {
  const runtime::Layout& layout = scenario.train.layout;
  const runtime::Definition& d = scenario.train.definition;
  std::set<std::string> all = {fmt::format("stage {}", layout.zero.stage)};
  const auto add = [&all](bool is, const char* what) {
    if (is) all.insert(what);
  };
  add(d.precision.compute != runtime::ElementType::f32,
      d.precision.compute == runtime::ElementType::f16 ? "fp16" : "bf16");
  add(scenario.accumulation > 1, "accumulation");
  add(layout.parallel.pipeline > 1, "pipeline");
  add(layout.parallel.tensor > 1, "tensor ways");
  add(layout.offload.any(), "offload");
  add(layout.checkpointing.any(), "recomputation");
  add(scenario.train.checkpoint.on(), "checkpoints");
  add(d.model.dropout.any(), "dropout");
  add(!scenario.faults.empty(), "faults");
  return all;
}

double overlap(const std::set<std::string>& a, const std::set<std::string>& b) {
  if (a.empty() && b.empty()) return 1;
  std::size_t both = 0;
  for (const std::string& one : a) both += b.count(one);
  return double(both) / double(a.size() + b.size() - both);
}

// What stands for "as it should be": one rank, without quirks.
Scenario as_it_should_be(const Scenario& scenario) {
  return scenario.train.definition.quirks.any() ? without_quirks(scenario) : golden_like(scenario);
}

struct Looked {
  Difference difference;
  std::string why_not;
  CurveVerdict curve;
};
Looked look(const Scenario& scenario, const Json& report, double wall_limit_s) {
  Looked looked;
  if (is_of_shapes(scenario)) {
    looked.why_not = "a shapes-only run has no values";
    return looked;
  }
  const Scenario right = as_it_should_be(scenario);
  try {
    looked.difference = difference_of(scenario, right, wall_limit_s);
    const Golden golden = run_golden(without_quirks(scenario), "", wall_limit_s);
    if (report.contains("loss")) looked.curve = compare_curves(report.at("loss"), Json(golden.loss));
  } catch (const BadInput& bad) {
    looked.why_not = bad.problems().front().what;
  } catch (const std::runtime_error& error) {
    looked.why_not = error.what();
  }
  return looked;
}

// What an exhibit says of itself without being run.
double at_first_sight(const Signature& run, const Json& exhibit, const Scenario& scenario) {
  std::set<std::string> red;
  const Json expect = exhibit.value("expect", Json());
  if (expect.is_object() && expect.contains("check_fails")) {
    const Json& fails = expect["check_fails"];
    if (fails.is_string()) red.insert(head_of(fails));
    if (fails.is_array()) {
      for (const Json& one : fails) red.insert(head_of(one));
    }
  }
  return 2 * overlap(run.red, red) + overlap(run.setting, setting_of(scenario));
}

std::vector<LikeExhibit> look_alikes(const Signature& run, double wall_limit_s) {
  struct Candidate {
    MuseumExhibit exhibit;
    Scenario scenario;
    double sight;
  };
  std::vector<Candidate> candidates;
  for (MuseumExhibit& one : museum_exhibits({})) {
    Scenario scenario = load_scenario_text(dump(one.json), one.file);
    const double sight = at_first_sight(run, one.json, scenario);
    candidates.push_back({std::move(one), std::move(scenario), sight});
  }
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const Candidate& a, const Candidate& b) { return a.sight > b.sight; });
  candidates.resize(std::min(candidates.size(), kShortlist));
  std::vector<LikeExhibit> all;
  for (const Candidate& one : candidates) {
    RunOptions quiet;
    quiet.wall_limit_s = wall_limit_s;
    const Outcome outcome =
        guarded(one.exhibit.file, "", [&] { return run_scenario(one.scenario, quiet, [](std::string_view) {}); });
    const Looked looked = look(one.scenario, outcome.report, wall_limit_s);
    const Signature other = signature_of(one.scenario, outcome.report, looked.difference, looked.curve.seen);
    all.push_back({one.exhibit.file, one.scenario.name, likeness(run, other), one.exhibit.json.at("museum")});
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const LikeExhibit& a, const LikeExhibit& b) { return a.how.score > b.how.score; });
  while (all.size() > kShown || (!all.empty() && all.back().how.score < kAlike)) all.pop_back();
  return all;
}

std::vector<std::string> causes_of(const Scenario& scenario, const Json& report) {
  std::vector<std::string> causes;
  const runtime::PlantedBug& bug = scenario.train.bug;
  for (const runtime::BugInfo& info : runtime::bug_catalogue()) {
    if (bug.is(info.bug) && info.bug != runtime::Bug::none)
      causes.push_back(fmt::format("planted: {}: {}", runtime::text(bug), info.does));
  }
  for (const std::string& quirk : quirk_names(scenario.train.definition.quirks))
    causes.push_back("requested: the quirk " + quirk);
  for (const Json& fault : report.value("faults", Json::array())) {
    if (fault.value("fired", 0) > 0)
      causes.push_back(fmt::format("injected: {}, {} times", fault.value("rule", ""), fault.value("fired", 0)));
  }
  for (const Json& analysis : report.value("analysis", Json::array())) {
    causes.push_back("flight recorders: " + analysis.value("text", ""));
    if (causes.size() > 8) break;
  }
  if (causes.empty())
    causes.push_back(
        "nothing was planted or injected: the cause is the configuration, or a bug in seeksim or in an extension");
  return causes;
}

std::string end_of(const Json& report) {
  if (report.contains("stopped") && report.at("stopped").is_string())
    return "the job ends: " + report.at("stopped").get<std::string>();
  if (report.value("verdict", "") == "no_progress") return "the job hangs without an error";
  if (!report.value("recoveries", Json::array()).empty()) return "training completes, after recoveries";
  return "training completes without an error";
}

}  // namespace

Signature signature_of(const Scenario& scenario, const Json& report, const Difference& difference, bool curve) {
  Signature s;
  for (const std::string& name : red_checks(report)) s.red.insert(head_of(name));
  const bool stopped = report.contains("stopped") && report.at("stopped").is_string();
  s.end = report.value("verdict", "") == "no_progress" ? "stuck" : stopped ? "stopped" : "finished";
  if (difference.op) {
    s.phase = std::string(name(difference.op->a.op.phase));
    s.kind = std::string(name(difference.op->a.op.kind));
    s.tag = difference.op->tag;
  }
  s.curve = curve;
  s.setting = setting_of(scenario);
  return s;
}

Likeness likeness(const Signature& a, const Signature& b) {
  constexpr double kRed = 4, kFirst = 3, kEnd = 1, kCurve = 1, kSetting = 1;
  std::vector<std::string> why;
  double score = kRed * overlap(a.red, b.red);
  if (!a.red.empty() && a.red == b.red) why.push_back("the same checks failed");
  const double first = (double(a.phase == b.phase) + double(a.kind == b.kind) + double(a.tag == b.tag)) / 3;
  score += kFirst * first;
  if (first == 1)
    why.push_back(a.phase.empty() ? "no number of a step differs"
                                  : fmt::format("it begins in a {} of {}, in {}", a.kind, a.phase, a.tag));
  else if (a.phase == b.phase)
    why.push_back("it begins in " + a.phase);
  score += kEnd * double(a.end == b.end) + kCurve * double(a.curve == b.curve);
  if (a.end == b.end && a.end != "finished") why.push_back(a.end == "stuck" ? "no rank continues" : "the job ends");
  const double setting = overlap(a.setting, b.setting);
  score += kSetting * setting;
  if (setting == 1) why.push_back("the same setting");
  return {score / (kRed + kFirst + kEnd + kCurve + kSetting), fmt::format("{}", fmt::join(why, "; "))};
}

Explanation explain(const Scenario& scenario, const Json& report, double wall_limit_s) {
  Explanation all;
  for (const Json& check : report.value("checks", Json::array())) {
    if (!check.value("ok", true))
      all.red.push_back(fmt::format("{}: {}", check.value("name", ""), check.value("detail", "")));
  }
  if (all.red.empty() && report.value("verdict", "") != "no_progress") return all;
  Looked looked = look(scenario, report, wall_limit_s);
  all.difference = std::move(looked.difference);
  all.no_difference = looked.why_not;
  all.curve = looked.curve.text;
  all.causes = causes_of(scenario, report);
  all.end = end_of(report);
  all.exhibits = look_alikes(signature_of(scenario, report, all.difference, looked.curve.seen), wall_limit_s);
  return all;
}

std::string explanation_text(const Explanation& e, const Style& style) {
  if (e.red.empty() && e.causes.empty()) return "no check failed: there is nothing to explain\n";
  std::string out = style.bold("Why it failed") + '\n';
  const auto section = [&out](const char* title, const std::vector<std::string>& lines) {
    for (std::size_t i = 0; i < lines.size(); ++i) out += fmt::format("  {:<10}{}\n", i == 0 ? title : "", lines[i]);
  };
  section("failed", e.red);
  if (!e.no_difference.empty()) {
    section("first", {"not searched: " + e.no_difference});
  } else if (!e.difference.any) {
    section("first", {"no number differs from the golden's: the failed checks are not about values"});
  } else {
    section("first", {e.difference.step < 0 ? "after the last step: " + e.difference.what
                                            : fmt::format("step {}: {}", e.difference.step, e.difference.what)});
    if (e.difference.op) out += difference_text(*e.difference.op, "            ");
    section("path", e.difference.chain);
  }
  section("cause", e.causes);
  section("user sees", {e.end, "visible in the loss curve: " + (e.curve.empty() ? "not compared" : e.curve)});
  if (e.exhibits.empty()) section("alike", {"nothing in the museum resembles this"});
  for (const LikeExhibit& one : e.exhibits) {
    section(&one == e.exhibits.data() ? "alike" : "",
            {fmt::format("{} ({:.0f} %: {})", style.bold(one.name), 100 * one.how.score, one.how.why),
             "symptom   " + one.museum.value("symptom", ""), "fix       " + one.museum.value("fix", ""),
             "seen in   " + one.museum.value("source", "")});
  }
  return out;
}

Json explanation_json(const Explanation& e) {
  Json alike = Json::array();
  for (const LikeExhibit& one : e.exhibits)
    alike.push_back({{"exhibit", one.name}, {"file", one.file}, {"score", one.how.score}, {"why", one.how.why}});
  return {{"red", e.red},
          {"step", e.difference.any && e.difference.step >= 0 ? Json(e.difference.step) : Json(nullptr)},
          {"what", e.difference.what},
          {"op", e.difference.op ? difference_json(*e.difference.op) : Json(nullptr)},
          {"way", e.difference.chain},
          {"causes", e.causes},
          {"end", e.end},
          {"curve", e.curve},
          {"alike", alike}};
}

}  // namespace seeksim::harness
