#include "harness/oracles/alarms.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <set>

#include <nlohmann/json.hpp>

#include "harness/input/json_text.h"
#include "harness/oracles/arguments.h"
#include "runtime/seams/time.h"

namespace seeksim::harness {
namespace {

using runtime::seconds;
using runtime::StepRecord;

// NaN is no good value, whichever side the limit is on.
bool above(double value, double limit) { return !(value <= limit); }
bool below(double value, double limit) { return !(value >= limit); }

// A limit on one number of each committed step.
struct StepLimit {
  const char* name;
  std::optional<double> Alarms::*limit;
  bool (*passed)(double value, double limit);
  const char* word;
  bool of_values;  // a run of shapes does not have it
  // Nothing where the step has no such number. before: null for the first step.
  std::optional<double> (*value)(const StepRecord& step, const StepRecord* before);
};
const StepLimit kStepLimits[] = {
    {"loss_max", &Alarms::loss_max, above, "above", true,
     [](const StepRecord& step, const StepRecord*) -> std::optional<double> { return double(step.loss); }},
    {"loss_min", &Alarms::loss_min, below, "below", true,
     [](const StepRecord& step, const StepRecord*) -> std::optional<double> { return double(step.loss); }},
    {"grad_norm_max", &Alarms::grad_norm_max, above, "above", true,
     [](const StepRecord& step, const StepRecord*) -> std::optional<double> { return double(step.grad_norm); }},
    {"loss_scale_min", &Alarms::loss_scale_min, below, "below", true,
     [](const StepRecord& step, const StepRecord*) -> std::optional<double> { return step.loss_scale; }},
    {"step_s_max", &Alarms::step_s_max, above, "above", false,
     [](const StepRecord& step, const StepRecord* before) -> std::optional<double> {
       if (before == nullptr) return std::nullopt;
       return seconds(step.committed_ns - before->committed_ns);
     }},
};
constexpr const char* kMemoryShare = "memory_share_max";
constexpr const char* kNonfinite = "nonfinite_max";

// A limit on how a step's tokens were spread over experts.
struct LoadLimit {
  const char* name;
  std::optional<double> Alarms::*limit;
  double ExpertLoad::*value;
};
const LoadLimit kLoadLimits[] = {
    {"expert_share_max", &Alarms::expert_share_max, &ExpertLoad::share},
    {"dropped_share_max", &Alarms::dropped_share_max, &ExpertLoad::dropped},
};

std::vector<Passing> passings(const StepLimit& row, double limit, const RunRecord& run) {
  std::vector<Passing> found;
  const StepRecord* before = nullptr;
  for (const StepRecord& step : run.steps) {
    const std::optional<double> value = row.value(step, before);
    if (value && row.passed(*value, limit)) found.push_back({step.step, step.committed_ns, *value});
    before = &step;
  }
  return found;
}

std::vector<Passing> passings(const LoadLimit& row, double limit, const RunRecord& run) {
  std::vector<Passing> found;
  for (const ExpertLoad& load : run.training.choices.loads()) {
    const auto step =
        std::find_if(run.steps.begin(), run.steps.end(), [&](const StepRecord& one) { return one.step == load.step; });
    if (step != run.steps.end() && above(load.*row.value, limit))
      found.push_back({load.step, step->committed_ns, load.*row.value});
  }
  return found;
}

std::vector<Passing> over_memory_share(const Scenario& scenario, double limit, const RunRecord& run) {
  const double share = double(run.memory.peak) / double(scenario.world.device.capacity_bytes);
  if (!above(share, limit)) return {};
  return {{-1, run.virtual_ns, share}};
}

// From the step on that is one too many.
std::vector<Passing> too_many_nonfinite(std::int64_t limit, const RunRecord& run) {
  std::vector<Passing> found;
  std::int64_t seen = 0;
  for (const StepRecord& step : run.steps) {
    if (std::isfinite(step.loss) && std::isfinite(step.grad_norm)) continue;
    if (++seen > limit) found.push_back({step.step, step.committed_ns, double(seen)});
  }
  return found;
}

const char* word_of(const std::string& name) {
  for (const StepLimit& row : kStepLimits)
    if (name == row.name) return row.word;
  return "above";
}

std::vector<std::string> alarm_names() {
  std::vector<std::string> names;
  for (const StepLimit& row : kStepLimits) names.emplace_back(row.name);
  names.emplace_back(kMemoryShare);
  names.emplace_back(kNonfinite);
  for (const LoadLimit& row : kLoadLimits) names.emplace_back(row.name);
  return names;
}

}  // namespace

std::vector<Alarm> raised_alarms(const Scenario& scenario, const RunRecord& run) {
  const Alarms& limits = scenario.watched.alarms;
  std::vector<Alarm> raised;
  const auto add = [&](const char* name, double limit, std::vector<Passing> found) {
    if (!found.empty()) raised.push_back({name, limit, std::move(found)});
  };
  for (const StepLimit& row : kStepLimits) {
    const std::optional<double> limit = limits.*row.limit;
    if (limit && (run.has_values || !row.of_values)) add(row.name, *limit, passings(row, *limit, run));
  }
  if (limits.memory_share_max)
    add(kMemoryShare, *limits.memory_share_max, over_memory_share(scenario, *limits.memory_share_max, run));
  if (limits.nonfinite_max && run.has_values)
    add(kNonfinite, double(*limits.nonfinite_max), too_many_nonfinite(*limits.nonfinite_max, run));
  for (const LoadLimit& row : kLoadLimits) {
    const std::optional<double> limit = limits.*row.limit;
    if (limit) add(row.name, *limit, passings(row, *limit, run));
  }
  return raised;
}

std::string text_of(const Alarm& alarm) {
  const Passing& first = alarm.passings.front();
  std::string text = fmt::format("alarm {}: {:.6g}", alarm.name, first.value);
  if (first.step >= 0) text += fmt::format(" in step {}", first.step);
  text += fmt::format(", {} {:.6g}", word_of(alarm.name), alarm.limit);
  if (alarm.passings.size() > 1) text += fmt::format("; {} steps in all", alarm.passings.size());
  return text;
}

Json alarms_json(const std::vector<Alarm>& alarms) {
  Json all = Json::array();
  for (const Alarm& alarm : alarms) {
    const Passing& first = alarm.passings.front();
    all.push_back({{"alarm", alarm.name},
                   {"limit", alarm.limit},
                   {"step", first.step < 0 ? Json(nullptr) : Json(first.step)},
                   {"at_s", seconds(first.at_ns)},
                   {"value", number_or_word(first.value)},
                   {"times", alarm.passings.size()}});
  }
  return all;
}

std::vector<std::string> alarms_in_step(const std::vector<Alarm>& alarms, std::int64_t step) {
  std::vector<std::string> names;
  for (const Alarm& alarm : alarms) {
    const bool here = std::any_of(alarm.passings.begin(), alarm.passings.end(),
                                  [&](const Passing& passing) { return passing.step == step; });
    if (here) names.emplace_back(alarm.name);
  }
  return names;
}

std::string want_alarms(const std::string& text, int) {
  if (text == "none") return "";
  const std::vector<std::string> names = alarm_names();
  for (const std::string& name : split(text)) {
    if (std::find(names.begin(), names.end(), name) == names.end())
      return fmt::format("there is no alarm \"{}\"; there are {}, or none", name, fmt::join(names, ", "));
  }
  return text.empty() ? "name the alarms that have to be raised, or none" : "";
}

Finding alarms(const Evidence& e, const std::string& argument) {
  if (!e.scenario.watched.alarms.any()) return blind("the scenario has no \"alarms\"");
  if (e.run.steps.empty()) return blind("no step was committed");
  const std::vector<Alarm> raised = raised_alarms(e.scenario, e.run);
  std::set<std::string> wanted, seen;
  if (argument != "none")
    for (const std::string& name : split(argument)) wanted.insert(name);
  std::vector<std::string> texts;
  for (const Alarm& alarm : raised) {
    seen.insert(alarm.name);
    texts.push_back(text_of(alarm));
  }
  if (seen == wanted) return good(texts.empty() ? "no limit was passed" : fmt::format("{}", fmt::join(texts, "; ")));
  for (const std::string& name : wanted)
    if (!seen.contains(name)) texts.push_back(fmt::format("{} was not raised", name));
  return bad(fmt::format("{}", fmt::join(texts, "; ")));
}

}  // namespace seeksim::harness
