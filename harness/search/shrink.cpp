#include "harness/search/shrink.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "harness/input/json_text.h"
#include "harness/loading/load.h"
#include "harness/run/fault_draws.h"
#include "harness/run/planned_run.h"

namespace seeksim::harness {

using nlohmann::literals::operator""_json_pointer;

namespace {

constexpr std::size_t kDeviationsTold = 12;  // of a schedule: more say less than how they were drawn

// ---- simpler values ------------------------------------------------------------------------------------------------

std::vector<Json> removed(const Json&) { return {nullptr}; }

// The least, then half the way to it, a quarter, ... and one less.
template <std::int64_t least>
std::vector<Json> less(const Json& present) {
  std::vector<Json> values;
  if (!present.is_number_integer() || present.get<std::int64_t>() <= least) return values;
  const std::int64_t value = present.get<std::int64_t>();
  for (std::int64_t step = value - least; step > 0; step /= 2) values.push_back(value - step);
  return values;
}

// Everything a step sooner: neither fewer steps nor an earlier fault alone shows what the two together do.
std::vector<Json> sooner(const Json& document) {
  const auto steps = document.find("steps");
  if (steps == document.end() || !steps->is_number_integer() || steps->get<std::int64_t>() <= 1) return {};
  Json other = document;
  other["steps"] = steps->get<std::int64_t>() - 1;
  bool earlier = false;
  for (Json& fault : other["faults"]) {
    if (!fault.is_object() || !fault.contains("step") || !fault["step"].is_number_integer()) continue;
    const std::int64_t step = fault["step"];
    if (step > 0) fault["step"] = step - 1;
    earlier |= step > 0;
  }
  return earlier ? std::vector<Json>{other} : std::vector<Json>{};
}

// The same number of ranks on one machine; machines with one rank each.
std::vector<Json> fewer_nodes(const Json& world) {
  if (!world.is_object() || !world.contains("nodes") || !world.contains("ranks_per_node")) return {};
  const Json &nodes = world["nodes"], &ranks = world["ranks_per_node"];
  if (!nodes.is_number_integer() || !ranks.is_number_integer() || nodes.get<int>() <= 1) return {};
  Json one = world;
  one["nodes"] = 1;
  one["ranks_per_node"] = nodes.get<std::int64_t>() * ranks.get<std::int64_t>();
  return {one};
}

std::vector<Json> synthetic(const Json& data) {
  if (!data.is_object() || !data.contains("text")) return {};
  Json drawn = Json::object();
  drawn["synthetic"] = true;
  return {drawn};
}

// Half as many stages or ways, or ranks of an expert or a context group, on half as many ranks.
std::vector<Json> fewer_ways(const Json& world) {
  std::vector<Json> values;
  const auto halve = [&](Json& in, const char* key) {
    if (!in.contains(key) || !in[key].is_number_integer() || in[key].get<std::int64_t>() % 2 != 0) return false;
    in[key] = in[key].get<std::int64_t>() / 2;
    return in[key].get<std::int64_t>() > 0;
  };
  if (!world.is_object()) return values;
  for (const char* ways : {"pipeline", "tensor", "expert", "context"}) {
    for (const char* ranks : {"ranks_per_node", "nodes"}) {
      Json half = world;
      if (halve(half, ways) && halve(half, ranks)) values.push_back(half);
    }
  }
  return values;
}

// None, or the one that draws nothing.
std::vector<Json> simpler_schedule(const Json& present) {
  Json first = Json::object();
  first["strategy"] = "first";
  if (present == first) return {nullptr};
  return {nullptr, first};
}

// Without a half of them, a quarter, ... and without one.
std::vector<Json> fewer(const Json& list) {
  std::vector<Json> values;
  if (!list.is_array()) return values;
  for (std::size_t chunk = list.size(); chunk > 0; chunk /= 2) {
    for (std::size_t from = 0; from < list.size(); from += chunk) {
      Json rest = Json::array();
      for (std::size_t i = 0; i < list.size(); ++i) {
        if (i < from || i >= from + chunk) rest.push_back(list[i]);
      }
      values.push_back(rest);
    }
  }
  return values;
}

// The width goes with the heads: one head of the width of each.
std::vector<Json> one_head(const Json& model) {
  const auto number = [&](const char* key) {
    return model.is_object() && model.contains(key) && model[key].is_number_integer() ? model[key].get<std::int64_t>()
                                                                                      : std::int64_t(0);
  };
  if (number("heads") <= 1 || number("width") < number("heads")) return {};
  Json one = model;
  one["width"] = number("width") / number("heads");
  one["heads"] = 1;
  if (one.contains("kv_heads")) one["kv_heads"] = 1;
  return {one};
}

// ---- places --------------------------------------------------------------------------------------------------------

using Pointer = Json::json_pointer;

// All places that a pattern names, the last of a list first: taking it away moves no other.
void find_places(const Json& value, std::string_view pattern, const std::string& at, std::vector<std::string>& places) {
  if (pattern.empty()) {
    places.push_back(at);
    return;
  }
  const std::size_t end = std::min(pattern.find('/', 1), pattern.size());
  const std::string_view step = pattern.substr(1, end - 1), rest = pattern.substr(end);
  if (value.is_object()) {
    for (const auto& [key, inner] : value.items()) {
      if (step == "*" || step == key) find_places(inner, rest, at + '/' + pointer_step(key), places);
    }
  } else if (value.is_array() && step == "*") {
    for (std::size_t i = value.size(); i-- > 0;) find_places(value[i], rest, fmt::format("{}/{}", at, i), places);
  }
}

// What it says of itself is not part of what fails.
bool is_about(const std::string& place) { return place == "/name" || place == "/why" || place == "/expect"; }

std::string short_text(const Json& value) {
  std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  return text.size() <= 60 ? text : text.substr(0, 57) + "...";
}

Json edited(const Json& document, const std::string& place, const Json& value) {
  Json other = document;
  if (!value.is_null()) {
    other[Pointer(place)] = value;
    return other;
  }
  const Pointer pointer(place);
  Json& parent = other[pointer.parent_pointer()];
  if (parent.is_array()) {
    parent.erase(std::size_t(std::stoul(pointer.back())));
  } else {
    parent.erase(pointer.back());
  }
  return other;
}

// ---- the search ----------------------------------------------------------------------------------------------------

class Search {
 public:
  Search(const std::function<Verdict(const Json&)>& judge, int runs_max) : judge_(judge), runs_max_(runs_max) {}

  Shrunk run(const Json& document) {
    shrunk_.scenario = document;
    while (pass()) {
    }
    return std::move(shrunk_);
  }

 private:
  // Everything once; false when nothing could be made simpler.
  bool pass() {
    const std::size_t before = shrunk_.edits.size();
    for (const Simplification& one : simplifications()) {
      std::vector<std::string> places;
      find_places(shrunk_.scenario, one.where, "", places);
      for (const std::string& place : places) {
        while (!is_about(place) && shrunk_.scenario.contains(Pointer(place)) && improve(one, place)) {
        }
      }
    }
    return shrunk_.edits.size() > before && shrunk_.smallest;
  }

  // Takes the first simpler value with which it still fails; false when there is none, or nothing is left there.
  bool improve(const Simplification& one, const std::string& place) {
    const Json present = shrunk_.scenario[Pointer(place)];
    for (const Json& value : one.values(present)) {
      Json candidate = edited(shrunk_.scenario, place, value);
      if (!fails(candidate)) continue;
      shrunk_.scenario = std::move(candidate);
      shrunk_.edits.push_back(place.empty() ? "steps and faults: one sooner"
                              : value.is_null()
                                  ? fmt::format("{}: removed", dotted(place))
                                  : fmt::format("{}: {} -> {}", dotted(place), short_text(present), short_text(value)));
      return !value.is_null();
    }
    return false;
  }

  bool fails(const Json& candidate) {
    if (!tried_.insert(candidate.dump(-1, ' ', false, Json::error_handler_t::replace)).second) return false;
    if (shrunk_.runs >= runs_max_) {
      shrunk_.smallest = false;
      return false;
    }
    const Verdict verdict = judge_(candidate);
    ++(verdict == Verdict::refused ? shrunk_.refused : shrunk_.runs);
    return verdict == Verdict::fails_alike;
  }

  const std::function<Verdict(const Json&)>& judge_;
  int runs_max_;
  Shrunk shrunk_;
  std::set<std::string> tried_;
};

// { "a": 1, "b": [ 2 ] } on one line.
void spaced(const Json& value, std::string& text) {
  if (!value.is_structured()) {
    text += value.dump(-1, ' ', false, Json::error_handler_t::replace);
    return;
  }
  const char* separator = " ";
  text += value.is_object() ? '{' : '[';
  for (const auto& [key, inner] : value.items()) {
    text += separator;
    if (value.is_object()) text += Json(key).dump() + ": ";
    spaced(inner, text);
    separator = ", ";
  }
  if (!value.empty()) text += ' ';
  text += value.is_object() ? '}' : ']';
}

}  // namespace

const std::vector<Simplification>& simplifications() {
  static const std::vector<Simplification> table = {
      {"/faults/*", removed},
      {"/own_faults/*", removed},
      {"/checks/*", removed},
      {"/schedule", simpler_schedule},
      {"/schedule/deviations", fewer},
      {"/schedule/slow", fewer},
      {"/steps", less<1>},
      {"", sooner},
      {"/world/ranks_per_node", less<1>},
      {"/world/nodes", less<1>},
      {"/world", fewer_nodes},
      {"/world", fewer_ways},
      {"/model/layers", less<1>},
      {"/data", synthetic},
      {"/model", one_head},
      {"/model/width", less<1>},
      {"/model/context", less<1>},
      {"/model/vocab", less<1>},
      // Each key that may be left out: all of a section first, then its members.
      {"/*", removed},
      {"/deepspeed/*", removed},
      {"/deepspeed/*/*", removed},
      {"/deepspeed/*/*/*", removed},
      {"/model/*", removed},
      {"/world/*", removed},
      {"/*/*", removed},
      {"/model/frozen/*", removed},
      {"/faults/*/*", removed},
      {"/deepspeed/zero_optimization/stage", less<0>},
      {"/deepspeed/train_batch_size", less<1>},
      {"/deepspeed/gradient_accumulation_steps", less<1>},
      {"/deepspeed/train_micro_batch_size_per_gpu", less<1>},
      {"/deepspeed/*/*", less<0>},
      {"/faults/*/*", less<0>},
      {"/schedule/*", less<0>},
      {"/schedule/slow/*/doublings", less<1>},
      {"/recovery/*", less<1>},
      {"/seed", less<1>},
      {"/training_seed", less<1>},
  };
  return table;
}

namespace {
// Whether its faults leave at least one rank. A scenario that cannot be loaded is for others to refuse.
bool leaves_somebody(const Json& document, const std::string& file) try {
  const Scenario scenario = load_scenario_text(document.dump(-1, ' ', false, Json::error_handler_t::replace), file);
  int lost = 0;
  for (const faults::Rule& rule : scenario.faults) lost += std::min(ranks_lost(scenario, rule), scenario.world.ranks());
  return lost < scenario.world.members();
} catch (const BadInput&) {
  return true;
}
}  // namespace

Trial try_scenario(Json document, const std::string& file, double wall_limit_s) {
  document["expect"] = "pass";
  RunOptions options;
  options.wall_limit_s = wall_limit_s;
  const Outcome outcome = guarded(file, "seeksim shrink " + file, [&] {
    const Scenario scenario = load_scenario_text(document.dump(-1, ' ', false, Json::error_handler_t::replace), file);
    if (!scenario.sweep.empty())
      throw BadInput(file, "it is a sweep", "Take \"sweep\" out and set the values of one of its rows.");
    return run_scenario(scenario, options, [](std::string_view) {});
  });
  Trial trial{outcome.status, {}, outcome.problems, {}};
  if (const auto schedule = outcome.report.find("schedule"); schedule != outcome.report.end())
    trial.choices = schedule->value("choices", Json());
  const auto checks = outcome.report.find("checks");
  if (checks == outcome.report.end()) return trial;
  for (const Json& check : *checks) {
    if (!check["ok"].get<bool>() && check.value("looked", true)) trial.red.push_back(check["name"]);
  }
  return trial;
}

bool Failure::in(const Trial& trial) const {
  return trial.status == status &&
         (check.empty() || std::find(trial.red.begin(), trial.red.end(), check) != trial.red.end());
}

std::string Failure::text() const {
  if (!check.empty()) return check + " is red";
  return status == ExitStatus::bug ? "it ends in a bug of seeksim" : "it makes no progress";
}

Failure failure_of(const Trial& trial, const std::string& wanted) {
  const auto is_wanted = [&](const std::string& name) {
    return wanted.empty() || name == wanted || name.substr(0, name.find(':')) == wanted;
  };
  // Without progress, or with a bug of ours, checks are red for that reason.
  if (wanted.empty() && (trial.status == ExitStatus::no_progress || trial.status == ExitStatus::bug))
    return {trial.status, ""};
  const auto found = std::find_if(trial.red.begin(), trial.red.end(), is_wanted);
  if (found == trial.red.end()) return {};
  return {trial.status, *found};
}

Shrunk shrink(const Json& document, const std::function<Verdict(const Json&)>& judge, int runs_max) {
  Json start = document;
  start["expect"] = "pass";
  return Search(judge, runs_max).run(start);
}

Shrunk shrink(const Json& document, const std::string& file, const Failure& failure, int runs_max,
              double wall_limit_s) {
  Json start = document;
  start["why"] = fmt::format("Shrunk: {}.", failure.text());
  // A run that no rank can survive fails too, and that says nothing about the failure in question.
  const bool survivable = leaves_somebody(start, file);
  const std::function<Verdict(const Json&)> judge = [&](const Json& candidate) {
    if (survivable && !leaves_somebody(candidate, file)) return Verdict::refused;
    const Trial trial = try_scenario(candidate, file, wall_limit_s);
    if (trial.status == ExitStatus::bad_input) return Verdict::refused;
    return failure.in(trial) ? Verdict::fails_alike : Verdict::differs;
  };
  Shrunk shrunk = shrink(start, judge, runs_max);
  const auto schedule = shrunk.scenario.find("schedule");
  if (schedule == shrunk.scenario.end() || schedule->contains("deviations")) return shrunk;
  // What was drawn, decision by decision.
  Json written = shrunk.scenario;
  const Json choices = try_scenario(written, file, wall_limit_s).choices;
  if (!choices.is_array() || choices.empty()) return shrunk;
  written["schedule"]["strategy"] = "first";
  for (const char* key : {"changes", "horizon"}) written["schedule"].erase(key);
  written["schedule"]["deviations"] = choices;
  if (judge(written) != Verdict::fails_alike) return shrunk;
  const Shrunk few = shrink(written, judge, runs_max);
  shrunk.runs += few.runs;
  shrunk.refused += few.refused;
  const Json deviations = few.scenario.value("/schedule/deviations"_json_pointer, Json::array());
  if (deviations.size() > kDeviationsTold) return shrunk;
  shrunk.edits.push_back(fmt::format("schedule: {} decisions -> {}", choices.size(), deviations.size()));
  shrunk.edits.insert(shrunk.edits.end(), few.edits.begin(), few.edits.end());
  shrunk.scenario = few.scenario;
  shrunk.smallest = shrunk.smallest && few.smallest;
  return shrunk;
}

std::string scenario_text(const Json& document) {
  std::string text = "{ ";
  const char* separator = "";
  for (const auto& [key, value] : document.items()) {
    text += separator + Json(key).dump() + ": ";
    spaced(value, text);
    separator = ",\n  ";
  }
  return text + " }\n";
}

}  // namespace seeksim::harness
