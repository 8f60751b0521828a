#include "harness/loading/fault_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace seeksim::harness {
namespace {

using namespace shapes;
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

template <class E>
Json names_of_all(const std::vector<E>& all) {
  Json json = Json::array();
  for (const E one : all) json.push_back(std::string(name(one)));
  return json;
}

template <class V>
Json list_or_all(const std::vector<V>& list) {
  return list.empty() ? Json("all") : Json(list);
}

Json kinds_of(const Enumerated& plan) { return names_of_all(plan.kinds); }
Json ranks_of(const Enumerated& plan) { return list_or_all(plan.ranks); }
Json steps_of(const Enumerated& plan) { return list_or_all(plan.steps); }
Json ops_of(const Enumerated& plan) { return plan.ops.empty() ? Json("all") : names_of_all(plan.ops); }
Json modes_of(const Enumerated& plan) { return names_of_all(plan.modes); }
bool names_modes(const Enumerated& plan) { return !plan.modes.empty(); }

const Keys<Enumerated>& enumerated_keys() {
  static const Keys<Enumerated> keys = {
      {"kinds", written_as<Enumerated>(kinds_of), list(text()).entries(1).required(), kNoBit,
       "Faults: rank_crash, collective_timeout; partition: of the first half of the nodes from the others, at each "
       "moment at which an operation begins and between two of them, whichever side reaches the control plane."},
      {"ranks", written_as<Enumerated>(ranks_of), either(text(), list(integer(0))), kNoBit,
       "Ranks that are struck: \"all\" or a list."},
      {"steps", written_as<Enumerated>(steps_of), either(text(), list(integer(0))), kNoBit,
       "Steps of the faults, counted from 0: a list, or \"all\", which includes the time before the first step."},
      {"ops", written_as<Enumerated>(ops_of), either(text(), list(text())), kNoBit, "Operations: \"all\" or a list."},
      {"every", at(&Enumerated::every), integer(1), kNoBit, "Of the places, each n-th: a thinner plan."},
      {"modes", written_as<Enumerated>(modes_of).when(names_modes),
       list(choice({"before", "during", "after", "never", "late"})).entries(1).unset(), kNoBit,
       "How each strikes; each kind's first mode unless said."},
  };
  return keys;
}

Json weights_of(const Random& plan) {
  if (plan.field) return "field";
  Json kinds = Json::object();
  for (const auto& [kind, weight] : plan.weights) kinds[std::string(name(kind))] = weight;
  return kinds;
}

Json rate_of(const Random& plan) {
  Json json = Json::object();
  for (const auto& [of, key] : kRates) {
    if (of == plan.rate_of) json[key] = plan.rate;
  }
  return json;
}

const Keys<Random>& rate_keys() {
  static const Keys<Random> keys = {
      {"per_rank_hour", by_hand, number().least(0), kNoBit, "Faults of a rank in an hour of virtual time."},
      {"per_node_day", by_hand, number().least(0), kNoBit, "Faults of a node in a day: 0.0023 to 0.0065 in the field."},
      {"per_run", by_hand, number().least(0).standard(1), kNoBit, "Faults of the world in a run, in the mean."},
  };
  return keys;
}

const Keys<Random>& random_keys() {
  static const Keys<Random> keys = {
      {"kinds", written_as<Random>(weights_of), either(text(), object_of(number().least(0)).keys(1)).required(), kNoBit,
       "Weights by kind, {\"rank_crash\": 2, \"link_drop\": 1}; or \"field\": by the causes of Llama 3's 419 "
       "unexpected interruptions."},
      {"acceleration", at(&Random::acceleration), number().above(0), kNoBit, "Times the rate."},
      {"ranks_lost_max", at(&Random::ranks_lost_max), integer(0), kNoBit,
       "The budget: faults that could cost more ranks than this, all together, are not drawn, so that a red run is a "
       "bug."},
      {"swarm", at(&Random::swarm), flag(), kNoBit,
       "The rate and the weights of each run are drawn too, about half of the weights as nothing."},
      {"runs", at(&Random::runs), integer(1, 1'000'000), kNoBit,
       "Number of runs, each with faults of its own. 1: an ordinary run, with a report of its own."},
      {"hours", at(&Random::hours), number().least(0), kNoBit,
       "Of virtual time in which faults come; 0: as long as the undisturbed run takes."},
      {"rate", written_as<Random>(rate_of), rate_keys().shape().keys(1, 1), kNoBit, "How often faults come."},
  };
  return keys;
}

bool enumerates(const PlannedFaults& plan) { return !plan.enumerated.kinds.empty(); }
bool draws(const PlannedFaults& plan) { return !plan.random.weights.empty(); }

void read_enumerated(const Reader& at, Scenario& scenario) {
  Enumerated& plan = scenario.planned.enumerated;
  enumerated_keys().read(at, plan);
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
  plan.every = std::max<std::int64_t>(1, plan.every);
}

void read_rate(const Reader& at, Random& plan) {
  const Reader rate = at.child("rate");
  for (const auto& [of, key] : kRates) {
    if (!rate.has(key)) continue;
    plan.rate_of = of;
    plan.rate = rate.number(key, plan.rate);
  }
}

void read_random(const Reader& at, Scenario& scenario) {
  Random& plan = scenario.planned.random;
  random_keys().read(at, plan);
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
    top.problem("fault_plan", "quirks change the bits that each of its runs is compared with", "Remove \"quirks\".");
}

}  // namespace

const Keys<PlannedFaults>& fault_plan_keys() {
  static const Keys<PlannedFaults> keys = {
      {"enumerate", inside(enumerated_keys(), &PlannedFaults::enumerated).read_by_hand().when(enumerates),
       enumerated_keys().shape(), kNoBit,
       "One run for each place: each operation of each rank that a fault can strike on the way in."},
      {"random", inside(random_keys(), &PlannedFaults::random).read_by_hand().when(draws), random_keys().shape(),
       kNoBit, "Faults drawn: when by a Poisson process, which by weights, each with a random stream of its own."},
      {"stops", at(&PlannedFaults::stops).unless_standard(), list(text().length(1)).unset(), kNoBit,
       "Words of the reasons for which a run of the plan may stop cleanly instead of finishing, such as \"no copy\"."},
  };
  return keys;
}

void read_fault_plan(const Reader& top, Scenario& scenario) {
  const Reader plan = top.child("fault_plan");
  if (plan.has("enumerate")) read_enumerated(plan.child("enumerate"), scenario);
  if (plan.has("random")) read_random(plan.child("random"), scenario);
  fault_plan_keys().read(plan, scenario.planned);
  check_fault_plan(top, scenario);
}

}  // namespace seeksim::harness
