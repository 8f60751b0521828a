#include "harness/explain/museum.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <sstream>

#include "harness/input/document.h"
#include "harness/input/files.h"
#include "harness/input/json_text.h"
#include "harness/input/scenario_files.h"
#include "harness/loading/load.h"
#include "harness/report/progress.h"
#include "harness/report/terminal.h"
#include "harness/run/forked.h"
#include "harness/run/planned_run.h"

namespace seeksim::harness {
namespace {

std::string folder() { return scenarios_folder() + "/museum"; }

// By spelling; else those that share most of its words.
std::string nearest_exhibits(const std::string& name, const std::vector<std::string>& known) {
  if (const std::string near = closest(name, known); !near.empty()) return fmt::format("Did you mean {}?", near);
  std::vector<std::pair<std::size_t, std::string>> alike;
  for (const std::string& exhibit : known) {
    std::size_t shared = 0;
    std::istringstream words(name);
    for (std::string word; std::getline(words, word, '_');)
      shared += word.size() > 3 && exhibit.find(word.substr(0, word.size() - 1)) != std::string::npos ? word.size() : 0;
    if (shared > 0) alike.emplace_back(shared, exhibit);
  }
  std::stable_sort(alike.begin(), alike.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  std::vector<std::string> named;
  for (std::size_t i = 0; i < std::min<std::size_t>(alike.size(), 3); ++i) named.push_back(alike[i].second);
  return named.empty() ? "`seeksim museum --markdown` lists them all."
                       : fmt::format("Did you mean {}?", fmt::join(named, ", or "));
}

// Files of the exhibits that were asked for.
std::vector<std::string> exhibits_of(const std::vector<std::string>& names) {
  std::vector<std::string> known, files;
  for (const std::string& file : list_folder(folder())) {
    if (file.size() > 5 && file.substr(file.size() - 5) == ".json") known.push_back(file.substr(0, file.size() - 5));
  }
  for (const std::string& name : names) {
    if (std::find(known.begin(), known.end(), name) == known.end())
      throw BadInput("museum " + name, "there is no such exhibit", nearest_exhibits(name, known));
  }
  for (const std::string& name : names.empty() ? known : names) files.push_back(folder() + '/' + name + ".json");
  return files;
}

Json document_of(const std::string& file) {
  const Document document = Document::load(file);
  if (!document.problems().empty()) throw BadInput(document.problems());
  return document.json();
}

Outcome show(const Json& json, const std::string& file, const std::vector<std::string>& sets) {
  LoadOptions load;
  load.sets = sets;
  return guarded(file, "seeksim run " + file,
                 [&] { return run_scenario(load_scenario_text(dump(json), file, load), {}, [](std::string_view) {}); });
}

std::vector<std::string> sets_of(const Json& exhibit) {
  std::vector<std::string> sets;
  if (!exhibit.at("museum").contains("without")) return sets;
  for (const Json& set : exhibit.at("museum").at("without")) sets.push_back(set.get<std::string>());
  return sets;
}

// What was expected to be red comes first.
void lead_with_expected(const Json& exhibit, std::vector<std::string>& caught) {
  const Json expect = exhibit.value("expect", Json::object());
  if (!expect.is_object() || !expect.contains("check_fails")) return;
  const std::string wanted = expect.at("check_fails").dump();
  std::stable_partition(caught.begin(), caught.end(), [&](const std::string& name) {
    return wanted.find('"' + name.substr(0, name.find(':'))) != std::string::npos;
  });
}

std::string planted_in(const Json& exhibit) {
  if (exhibit.contains("bug")) return exhibit.at("bug");
  if (exhibit.contains("faults") && !exhibit.at("faults").empty()) return exhibit.at("faults")[0].at("kind");
  return "its configuration";
}

std::string problems_of(const char* which, ExitStatus status, const Json& report) {
  if (status == ExitStatus::as_expected) return {};
  std::string why = report.value("sentence", "");
  if (why.empty() && report.contains("problems")) why = report.at("problems").dump();
  return fmt::format("{} it ends with exit status {}: {}; red: {}", which, code(status), why,
                     fmt::join(red_checks(report), ", "));
}

std::string row_text(const Shown& one, const Style& style) {
  const std::string verdict = one.problem.empty() ? style.good("caught") : style.bad("NOT AS EXPECTED");
  std::string text = fmt::format("{}  {} by {}; the loss curve: {}\n", style.bold(one.name), verdict,
                                 fmt::join(one.caught, ", "), one.curve.text);
  return one.problem.empty() ? text : text + "    " + one.problem + '\n';
}

}  // namespace

std::vector<MuseumExhibit> museum_exhibits(const std::vector<std::string>& names) {
  std::vector<MuseumExhibit> all;
  for (const std::string& file : exhibits_of(names)) all.push_back({file, document_of(file)});
  return all;
}

std::vector<std::string> red_checks(const Json& report) {
  std::vector<std::string> red;
  if (!report.contains("checks")) return red;
  for (const Json& check : report.at("checks")) {
    if (!check.at("ok").get<bool>() && check.value("looked", true)) red.push_back(check.at("name"));
  }
  return red;
}

const std::vector<std::string>& museum_groups() {
  static const std::vector<std::string> all = {"scaling",     "precision", "sharding",   "offload", "pipeline",
                                               "collectives", "data",      "checkpoint", "memory",  "hardware"};
  return all;
}

Json without_the_mistake(Json exhibit) {
  const bool planted = exhibit.contains("bug") || exhibit.contains("quirks");
  exhibit.erase("bug");
  exhibit.erase("quirks");
  exhibit.erase("expect");
  if (!planted && !exhibit.at("museum").contains("without")) exhibit.erase("faults");
  exhibit.at("museum").erase("without");
  return exhibit;
}

CurveVerdict compare_curves(const Json& with, const Json& without) {
  double apart = 0;
  for (std::size_t i = 0; i < std::min(with.size(), without.size()); ++i) {
    if (!without[i].is_number()) continue;  // what the fault that is in both did
    if (!with[i].is_number()) return {true, fmt::format("yes: no number in step {}", i)};
    const double a = with[i], b = without[i];
    apart = std::max(apart, std::abs(a - b) / std::max(std::abs(b), 1e-30));
  }
  if (with.size() < without.size())
    return {true, fmt::format("it ends after {} of {} steps", with.size(), without.size())};
  if (apart == 0) return {false, "no: the same bits"};
  const std::string most = fmt::format("{:.2g} %", apart * 100);
  return apart < kCurvesApart ? CurveVerdict{false, "no: at most " + most + " away"}
                              : CurveVerdict{true, "yes: up to " + most + " away"};
}

Shown judge_exhibit(const Json& exhibit, ExitStatus with_status, const Json& with, ExitStatus without_status,
                    const Json& without) {
  const Json& museum = exhibit.at("museum");
  Shown shown{
      exhibit.at("name"), museum.at("group"), planted_in(exhibit), museum.at("source"), red_checks(with), {}, {}};
  lead_with_expected(exhibit, shown.caught);
  shown.problem = problems_of("with the bug", with_status, with);
  if (shown.problem.empty()) shown.problem = problems_of("without the bug", without_status, without);
  if (shown.problem.empty() && shown.caught.empty()) shown.problem = "no check is red";
  if (with.contains("loss") && without.contains("loss"))
    shown.curve = compare_curves(with.at("loss"), without.at("loss"));
  return shown;
}

std::string museum_table(std::vector<Shown> exhibits) {
  const auto place = [](const Shown& one) {
    const std::vector<std::string>& all = museum_groups();
    return std::find(all.begin(), all.end(), one.group) - all.begin();
  };
  std::stable_sort(exhibits.begin(), exhibits.end(),
                   [&](const Shown& a, const Shown& b) { return place(a) < place(b); });
  std::string text =
      "| group | exhibit | caught by | would the loss curve have shown it | seen in |\n|---|---|---|---|---|\n";
  for (const Shown& one : exhibits) {
    text += fmt::format("| {} | `{}` | {} | {} | {} |\n", one.group, one.name, fmt::join(one.caught, ", "),
                        one.curve.text, one.source);
  }
  return text;
}

ExitStatus museum_command(const MuseumArguments& arguments, const Style& style) {
  const std::vector<MuseumExhibit> exhibits = museum_exhibits(arguments.names);
  std::vector<Outcome> outcomes(2 * exhibits.size());
  std::vector<Shown> shown;
  bool good = true;
  Progress bar(true, "museum", std::int64_t(exhibits.size()), "exhibit");
  std::int64_t not_caught = 0;
  Forked work;
  work.count = 2 * exhibits.size();
  work.jobs_each = 8;
  work.processes = arguments.processes;
  work.name = [&](std::size_t i) { return exhibits[i / 2].file; };
  work.run = [&](std::size_t i, const Print&) {
    const auto& [file, json] = exhibits[i / 2];
    return i % 2 == 0 ? show(json, file, {}) : show(without_the_mistake(json), file, sets_of(json));
  };
  work.done = [&](std::size_t i, const std::string&, const Outcome& outcome) {
    outcomes[i] = outcome;
    if (i % 2 == 0) return;
    shown.push_back(judge_exhibit(exhibits[i / 2].json, outcomes[i - 1].status, outcomes[i - 1].report, outcome.status,
                                  outcome.report));
    good = good && shown.back().problem.empty();
    bar.finish();
    if (!arguments.markdown || !shown.back().problem.empty()) put(row_text(shown.back(), style));
    not_caught += !shown.back().problem.empty();
    bar.update(0, std::int64_t(shown.size()), not_caught);
    outcomes[i - 1] = outcomes[i] = {};
  };
  run_forked(work);
  bar.finish();
  if (arguments.markdown) put_data(museum_table(shown));
  const auto unseen = std::count_if(shown.begin(), shown.end(), [](const Shown& one) { return !one.curve.seen; });
  if (!arguments.markdown) {
    const auto caught = std::count_if(shown.begin(), shown.end(), [](const Shown& one) { return one.problem.empty(); });
    put(fmt::format(
        "\n{} of {} exhibits are caught, and pass without their bug; the loss curve would not show {} of them\n",
        caught, shown.size(), unseen));
  }
  return good ? ExitStatus::as_expected : ExitStatus::check_failed;
}

}  // namespace seeksim::harness
