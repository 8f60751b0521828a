#include "harness/loading/fault_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace seeksim::harness {
namespace {

using faults::FaultKind;

constexpr std::array<std::pair<RateOf, const char*>, 3> kRates = {
    {{RateOf::rank_hour, "per_rank_hour"}, {RateOf::node_day, "per_node_day"}, {RateOf::run, "per_run"}}};

// What can be put at one Op of one rank by its trigger alone; a partition, at its time.
const std::vector<FaultKind>& enumerable() {
  static const std::vector<FaultKind> kinds = {FaultKind::rank_crash, FaultKind::collective_timeout,
                                               FaultKind::partition};
  return kinds;
}

std::vector<std::string> names_of(const std::vector<FaultKind>& kinds) {
  std::vector<std::string> names;
  for (const FaultKind kind : kinds) names.emplace_back(name(kind));
  return names;
}

FaultKind read_kind(const Reader& at, const char* key, const std::string& word, const std::vector<FaultKind>& known) {
  const FaultKind kind = faults::fault_kind(word);
  if (std::find(known.begin(), known.end(), kind) != known.end()) return kind;
  at.problem(key,
             kind == FaultKind::count_ ? fmt::format("there is no fault {}", in_quotes(word))
                                       : fmt::format("{} cannot be planned here", word),
             did_you_mean(word, names_of(known)));
  return FaultKind::count_;
}

// Calls back for each string or number of a list; "all" and nothing are an empty list.
template <class Each>
void for_each_of(const Reader& at, const char* key, Each&& each) {
  const Json* list = at.find(key);
  if (list == nullptr) return;
  if (list->is_string() && *list != "all")
    at.problem(key, fmt::format("{} is neither a list nor \"all\"", in_quotes(list->get<std::string>())), "");
  if (!list->is_array()) return;
  for (const Json& one : *list) each(one);
}

void read_enumerated(const Reader& at, Scenario& scenario) {
  Enumerated& plan = scenario.planned.enumerated;
  for_each_of(at, "kinds", [&](const Json& one) {
    if (!one.is_string()) return;
    const FaultKind kind = read_kind(at, "kinds", one.get<std::string>(), enumerable());
    if (kind != FaultKind::count_) plan.kinds.push_back(kind);
  });
  const int ranks = scenario.world.ranks();
  for_each_of(at, "ranks", [&](const Json& one) {
    if (!one.is_number_integer()) return;
    plan.ranks.push_back(int(one.get<std::int64_t>()));
    if (plan.ranks.back() < ranks) return;
    at.problem("ranks", fmt::format("rank {} is not in a world of {} ranks", plan.ranks.back(), ranks),
               fmt::format("Use 0..{}.", ranks - 1));
  });
  const std::int64_t steps = scenario.train.definition.steps;
  for_each_of(at, "steps", [&](const Json& one) {
    if (!one.is_number_integer()) return;
    plan.steps.push_back(one.get<std::int64_t>());
    if (plan.steps.back() < steps) return;
    at.problem("steps", fmt::format("step {} is not among {} steps", plan.steps.back(), steps),
               fmt::format("Steps are counted from 0: use 0..{}.", steps - 1));
  });
  for_each_of(at, "ops", [&](const Json& one) {
    const std::string word = one.is_string() ? one.get<std::string>() : "";
    plan.ops.push_back(runtime::op_kind(word));
    if (plan.ops.back() != runtime::OpKind::count_) return;
    plan.ops.pop_back();
    std::vector<std::string> known;
    for (int i = 0; i < int(runtime::OpKind::count_); ++i) known.emplace_back(name(runtime::OpKind(i)));
    at.problem("ops", fmt::format("there is no operation {}", in_quotes(word)), did_you_mean(word, known));
  });
  for_each_of(at, "modes", [&](const Json& one) {
    const faults::Mode mode = faults::mode(one.is_string() ? one.get<std::string>() : "");
    if (mode != faults::Mode::unset) plan.modes.push_back(mode);
  });
  plan.every = std::max<std::int64_t>(1, at.integer("every", 1));
}

void read_rate(const Reader& at, Random& plan) {
  const Reader rate = at.child("rate");
  for (const auto& [of, key] : kRates) {
    if (!rate.has(key)) continue;
    plan.rate_of = of;
    plan.rate = rate.number(key, plan.rate);
  }
  plan.acceleration = at.number("acceleration", plan.acceleration);
  plan.hours = at.number("hours", plan.hours);
}

void read_random(const Reader& at, Scenario& scenario) {
  Random& plan = scenario.planned.random;
  const Json* kinds = at.find("kinds");
  plan.field = kinds != nullptr && kinds->is_string();
  if (plan.field && *kinds != "field")
    at.problem("kinds", fmt::format("{} is no set of weights", in_quotes(kinds->get<std::string>())),
               "Use \"field\", or {\"rank_crash\": 1, ...}.");
  if (plan.field) plan.weights = field_weights();
  if (kinds != nullptr && kinds->is_object()) {
    std::vector<FaultKind> known;
    for (const auto& [kind, weight] : drawable()) known.push_back(kind);
    for (const auto& [word, weight] : kinds->items()) {
      const FaultKind kind = read_kind(at, "kinds", word, known);
      if (kind != FaultKind::count_ && weight.is_number()) plan.weights.emplace_back(kind, weight.get<double>());
    }
  }
  read_rate(at, plan);
  plan.ranks_lost_max = int(std::min<std::int64_t>(at.integer("ranks_lost_max", plan.ranks_lost_max), 1 << 30));
  plan.swarm = at.flag("swarm", plan.swarm);
  plan.runs = at.integer("runs", plan.runs);
}

// What a plan cannot be together with.
void check_fault_plan(const Reader& top, const Scenario& scenario) {
  const PlannedFaults& plan = scenario.planned;
  const bool many = !plan.enumerated.kinds.empty() || plan.random.runs > 1;
  if (!plan.enumerated.kinds.empty() && !plan.random.weights.empty())
    top.problem("fault_plan", "names both \"enumerate\" and \"random\"", "Keep one.");
  const std::vector<FaultKind>& kinds = plan.enumerated.kinds;
  if (std::find(kinds.begin(), kinds.end(), FaultKind::partition) != kinds.end() && scenario.world.nodes < 2)
    top.problem("fault_plan", "a partition needs two nodes", "Set world.nodes to 2 or more.");
  if (many && scenario.train.definition.quirks.any())
    top.problem("fault_plan", "quirks change the bits that each of its runs is held against", "Remove \"quirks\".");
}

Json names_json(const std::vector<FaultKind>& kinds) {
  Json json = Json::array();
  for (const FaultKind kind : kinds) json.push_back(std::string(name(kind)));
  return json;
}

}  // namespace

void read_fault_plan(const Reader& top, Scenario& scenario) {
  const Reader plan = top.child("fault_plan");
  if (plan.has("enumerate")) read_enumerated(plan.child("enumerate"), scenario);
  if (plan.has("random")) read_random(plan.child("random"), scenario);
  for_each_of(plan, "stops", [&](const Json& one) {
    if (one.is_string()) scenario.planned.stops.push_back(one.get<std::string>());
  });
  check_fault_plan(top, scenario);
}

Json fault_plan_json(const PlannedFaults& plan) {
  Json json;
  const Enumerated& e = plan.enumerated;
  if (!e.kinds.empty()) {
    Json ops = Json::array(), modes = Json::array();
    for (const runtime::OpKind op : e.ops) ops.push_back(std::string(name(op)));
    for (const faults::Mode mode : e.modes) modes.push_back(std::string(name(mode)));
    json["enumerate"] = {{"kinds", names_json(e.kinds)},
                         {"ranks", e.ranks.empty() ? Json("all") : Json(e.ranks)},
                         {"steps", e.steps.empty() ? Json("all") : Json(e.steps)},
                         {"ops", e.ops.empty() ? Json("all") : ops},
                         {"every", e.every}};
    if (!e.modes.empty()) json["enumerate"]["modes"] = modes;
  }
  const Random& r = plan.random;
  if (!r.weights.empty()) {
    Json kinds = Json::object();
    for (const auto& [kind, weight] : r.weights) kinds[std::string(name(kind))] = weight;
    Json& random = json["random"];
    random = {{"kinds", r.field ? Json("field") : kinds},
              {"acceleration", r.acceleration},
              {"ranks_lost_max", r.ranks_lost_max},
              {"swarm", r.swarm},
              {"runs", r.runs},
              {"hours", r.hours}};
    for (const auto& [of, key] : kRates) {
      if (of == r.rate_of) random["rate"][key] = r.rate;
    }
  }
  if (!plan.stops.empty()) json["stops"] = plan.stops;
  return json;
}

}  // namespace seeksim::harness
