#include "harness/search/explore.h"

#include <fmt/format.h>

#include <algorithm>

#include <nlohmann/json.hpp>

#include "faults/trigger.h"
#include "harness/input/document.h"
#include "harness/input/problem.h"
#include "harness/loading/extensions.h"
#include "harness/loading/faults.h"
#include "harness/loading/load.h"
#include "harness/loading/schedule.h"
#include "harness/loading/schedule_string.h"
#include "harness/run/fault_draws.h"
#include "harness/scenario/variants.h"
#include "harness/simulate/simulate.h"
#include "harness/verdict/checks.h"

namespace seeksim::harness {
namespace {

using faults::FaultKind;
using faults::Mode;
using faults::Rule;
using runtime::Op;

constexpr std::size_t kCorpusMax = 256;

const std::vector<std::pair<std::string, ExploreStrategy>> kStrategies = {
    {"mix", ExploreStrategy::mix},
    {"random", ExploreStrategy::random},
    {"pct", ExploreStrategy::pct},
    {"swarm", ExploreStrategy::swarm},
    {"enumerate", ExploreStrategy::enumerate},
    {"exhaustive", ExploreStrategy::exhaustive},
};

// What a run has to survive with the bits of one rank, as far as ranks are left to lose. Whatever changes numbers in
// silence is not among them.
const std::vector<FaultKind> kKinds = {FaultKind::rank_crash,
                                       FaultKind::collective_timeout,
                                       FaultKind::link_drop,
                                       FaultKind::slow_link,
                                       FaultKind::straggler,
                                       FaultKind::message_drop,
                                       FaultKind::message_corrupt,
                                       FaultKind::oom,
                                       FaultKind::pause,
                                       FaultKind::data_stall,
                                       FaultKind::zombie_message,
                                       FaultKind::kernel_hang,
                                       FaultKind::device_error,
                                       FaultKind::node_crash,
                                       FaultKind::nvme_read_error,
                                       FaultKind::nvme_short_read,
                                       FaultKind::nvme_write_error,
                                       FaultKind::slow_disk};

bool is_of_a_link(FaultKind kind) { return kind == FaultKind::link_drop || kind == FaultKind::slow_link; }

std::vector<FaultKind> kinds_for(const Scenario& scenario) {
  std::vector<FaultKind> kinds;
  for (const FaultKind kind : kKinds) {
    Rule rule;
    rule.kind = kind;
    const bool alone = scenario.world.ranks() < 2;
    if (kind == FaultKind::node_crash && scenario.world.nodes < 2) continue;
    if (alone && (is_of_a_link(kind) || faults::is_message(rule))) continue;
    kinds.push_back(kind);
  }
  return kinds;
}

// Holds whatever faults strike, as long as the run goes on.
bool holds_under_faults(const CheckSpec& check) {
  static const std::vector<std::string> names = {
      "golden",   "ranks_agree", "one_history",       "replicas_equal", "partition",
      "no_races", "no_poison",   "collectives_match", "quirk_differs",  "checkpoints_valid"};
  if (const OwnCheck* const own = own_check(check.name)) return own->under_faults;
  return std::find(names.begin(), names.end(), check.name) != names.end();
}

void choose_checks(Explored& explored, const ExploreOptions& options) {
  Scenario& scenario = explored.scenario;
  std::vector<CheckSpec> kept;
  for (const CheckSpec& check : scenario.checks) {
    Scenario only = undisturbed(scenario);
    only.checks = {check};
    const bool more = has(needs(only), Needs::undisturbed | Needs::tagged | Needs::fp32 | Needs::step);
    if (more || (options.faults && !holds_under_faults(check)))
      explored.notes.push_back(fmt::format("{} is not judged: {}", check.text(),
                                           more ? "it takes another run each time" : "faults may change it"));
    else
      kept.push_back(check);
  }
  const bool any_golden = std::any_of(kept.begin(), kept.end(), [](const CheckSpec& c) { return c.name == "golden"; });
  if (!any_golden && !is_of_shapes(scenario) && !scenario.train.definition.quirks.any())
    kept.push_back({"golden", "bitwise"});
  scenario.checks = kept;
}

}  // namespace

ExploreStrategy explore_strategy(const std::string& name) {
  std::vector<std::string> names;
  for (const auto& [known, strategy] : kStrategies) {
    if (known == name) return strategy;
    names.push_back(known);
  }
  throw BadInput("--strategy " + name, "there is no such strategy", did_you_mean(name, names));
}

namespace {

// A fault of the scenario's own that changes numbers, where neither the ranks nor the golden know of it: every case in
// which it strikes would be red.
bool is_silent(const Rule& rule, const GoldenPlan& golden) {
  switch (rule.kind) {
    case FaultKind::bit_flip:
    case FaultKind::zero_tile:
    case FaultKind::stale_gradient:
    case FaultKind::collective_mismatch:
      return true;
    case FaultKind::message_corrupt:
      return !rule.checksum;
    case FaultKind::nan_inject:
    case FaultKind::inf_inject:
    case FaultKind::overflow:
      return golden.skip_steps.empty();
    case FaultKind::loss_spike:
    case FaultKind::token_imbalance:
      return golden.drop_batches.empty() && golden.undo_changes.empty();
    default:
      return false;
  }
}

void leave_out_silent_faults(Explored& explored) {
  std::vector<Rule>& rules = explored.scenario.faults;
  Json& written = explored.document["faults"];
  for (std::size_t i = rules.size(); i-- > 0;) {
    if (!is_silent(rules[i], explored.scenario.golden)) continue;
    explored.notes.push_back(fmt::format("faults.{} is left out: {} changes numbers, so that each case would be red", i,
                                         faults::name(rules[i].kind)));
    rules.erase(rules.begin() + std::ptrdiff_t(i));
    if (i < written.size()) written.erase(i);
  }
}

Explored ready(Explored explored, const std::string& file, const ExploreOptions& options) {
  if (!explored.scenario.sweep.empty())
    throw BadInput(file, "it is a sweep", "Take \"sweep\" out, --set sweep={}, and set the values of one of its rows.");
  if (is_fast(explored.scenario))
    throw BadInput(file, "its runs would be judged by exact bits, and fast arithmetic has none",
                   "Use \"numerics\": \"exact\".");
  explored.scenario.expect = {};
  leave_out_silent_faults(explored);
  choose_checks(explored, options);
  return explored;
}

}  // namespace

Explored load_explored(const std::string& file, const std::vector<std::string>& sets, const ExploreOptions& options) {
  LoadOptions load;
  load.sets = sets;
  return ready({load_scenario(file, load), Document::load(file, sets).json(), {}}, file, options);
}

Explored load_explored(const Json& document, const std::string& file, const ExploreOptions& options) {
  return ready({load_scenario_text(document.dump(), file), document, {}}, file, options);
}

Json case_document(const Explored& explored, const ExploreCase& one, const RunRecord* fired) {
  Json json = explored.document;
  for (const char* key : {"fault_plan", "expect", "sweep", "mode", "sweep_skip", "schedule"}) json.erase(key);
  json["name"] = explored.scenario.name + "_explored";
  json["seed"] = one.seed;
  json["world"]["noise"] = one.noise;
  if (one.schedule != sim::Schedule{}) json["schedule"] = schedule_keys().written(one.schedule);
  const std::size_t own = explored.scenario.faults.size();
  Json rules = Json::array();
  const auto counts = [&](std::size_t i) {
    return fired == nullptr || one.rules.empty() || (i < fired->faults.size() && fired->faults[i].fired > 0);
  };
  for (std::size_t i = 0; i < own; ++i) {
    if (counts(i)) rules.push_back(to_json(explored.scenario.faults[i]));
  }
  for (std::size_t i = 0; i < one.rules.size(); ++i) {
    if (counts(own + i)) rules.push_back(to_json(one.rules[i]));
  }
  json["faults"] = rules;
  json["checks"] = Json::array();
  for (const CheckSpec& check : explored.scenario.checks) json["checks"].push_back(check.text());
  return json;
}

void Places::see(const Op& op) {
  const Key key{op.kind, op.phase, op.rank, op.step};
  const std::uint64_t calls = ++seen_[key];
  std::vector<Place>& group = groups_[{op.kind, op.phase}];
  const auto [at, is_new] = index_.emplace(key, group.size());
  if (is_new) group.push_back({op.rank, op.step, 0});
  group[at->second].calls = std::max(group[at->second].calls, calls);
}

Explorer::Explorer(const Explored& explored, const Golden* golden, const ExploreOptions& options, int worker)
    : explored_(explored),
      scenario_(explored.scenario),
      golden_(golden),
      options_(options),
      worker_(worker),
      random_(options.seed * 1'000'003 + std::uint64_t(worker), sim::Stream::schedule),
      kinds_(options.faults ? kinds_for(explored.scenario) : std::vector<FaultKind>()),
      node_of_(harness::node_of(explored.scenario.world)) {
  // All see the same undisturbed run first: where there is anything to strike, and how long it is.
  SimulationOptions look;
  look.watch = [this](const Op& op, runtime::TimeNs) { places_.see(op); };
  look.wall_limit_s = options.wall_limit_s;
  horizon_ = Simulation(undisturbed(explored.scenario), look).run().ended_ns;
  if (options.strategy != ExploreStrategy::enumerate) return;
  for (const auto& [group, places] : places_.groups()) {
    for (const Places::Place& place : places) {
      for (std::uint64_t call = 1; call <= place.calls; ++call) {
        for (const FaultKind kind : kinds_) {
          if (is_of_a_link(kind) || kind == FaultKind::node_crash) continue;
          sim::Random numbers(options.seed, sim::Stream::partial);
          Rule rule = draw_fault(scenario_, kind, numbers, horizon_);
          rule.when = {};
          rule.when.rank = place.rank;
          rule.when.op = group.first;
          rule.when.phase = group.second;
          if (place.step >= 0) rule.when.step = place.step;
          rule.when.call = call;
          Op op;
          op.kind = group.first;
          op.phase = group.second;
          op.step = place.step;
          if (faults::could_match_on_any_rank(rule, op) && faults::problems(rule, node_of_).empty())
            places_left_.push_back(rule);
        }
      }
    }
  }
  std::vector<Rule> mine;  // mixed, so that a budget that ends early has seen some of all
  for (std::size_t i = places_left_.size(); i > 1; --i)
    std::swap(places_left_[i - 1],
              places_left_[sim::Random(options.seed + i, sim::Stream::partial).below(std::uint32_t(i))]);
  for (std::size_t i = std::size_t(worker); i < places_left_.size(); i += std::size_t(options.workers))
    mine.push_back(places_left_[i]);
  places_left_ = std::move(mine);
}

int Explorer::lost(const std::vector<Rule>& rules) const {
  int sum = 0;
  for (const Rule& rule : rules) sum += ranks_lost(scenario_, rule);
  return sum;
}

// To an operation that the runs so far came to: of its kind and phase one where few have struck, then any rank and
// step.
bool Explorer::to_a_place(Rule& rule) {
  const Places::Group* best = nullptr;
  std::uint64_t best_score = ~std::uint64_t(0);
  for (const auto& [group, places] : places_.groups()) {
    Rule named = rule;
    named.when = {};
    named.when.op = group.first;
    if (!faults::can_concern(named, group.first)) continue;
    const std::uint64_t score = (coverage_.times_struck(rule.kind, group.first, group.second) + 1) * (1 + below(1000));
    if (score >= best_score) continue;
    best_score = score;
    best = &group;
  }
  if (best == nullptr) return false;
  const std::vector<Places::Place>& places = places_.groups().at(*best);
  const Places::Place& place = places[below(places.size())];
  rule.when = {};
  rule.when.rank = place.rank;
  rule.when.op = best->first;
  rule.when.phase = best->second;
  if (place.step >= 0) rule.when.step = place.step;
  rule.when.call = 1 + below(std::size_t(place.calls));
  return true;
}

std::optional<Rule> Explorer::fault(FaultKind kind) {
  Rule rule = draw_fault(scenario_, kind, random_, horizon_);
  const bool timed = is_of_a_link(kind) || kind == FaultKind::node_crash;
  if (!timed && !to_a_place(rule)) return std::nullopt;
  if (kind == FaultKind::rank_crash) {
    const Mode modes[] = {Mode::before, Mode::during, Mode::after};
    rule.mode = modes[below(3)];
  }
  if (kind == FaultKind::data_stall) rule.when.op = std::nullopt, rule.when.phase = std::nullopt;
  if (!faults::problems(rule, node_of_).empty()) return std::nullopt;
  return rule;
}

void Explorer::add_faults(ExploreCase& one, int n, const std::vector<FaultKind>& kinds) {
  if (kinds.empty()) return;
  const int budget = scenario_.planned.random.ranks_lost_max;
  for (int tries = 0; tries < 4 * n && n > 0; ++tries) {
    const std::optional<Rule> rule = fault(kinds[below(kinds.size())]);
    if (!rule || lost(one.rules) + ranks_lost(scenario_, *rule) > budget) continue;
    one.rules.push_back(*rule);
    --n;
  }
}

sim::Schedule Explorer::schedule(ExploreStrategy strategy) {
  sim::Schedule schedule;
  switch (strategy) {
    case ExploreStrategy::pct:
      schedule.strategy = sim::Strategy::pct;
      schedule.changes = below(8);
      schedule.horizon = decisions_;
      break;
    case ExploreStrategy::swarm:
      schedule.strategy = below(2) == 0 ? sim::Strategy::swarm : sim::Strategy::seeded;
      for (std::uint32_t n = below(4); n > 0; --n)
        schedule.slow.push_back({int(below(std::size_t(scenario_.world.ranks()))),
                                 sim::SlowQueue::Which(below(std::size_t(sim::SlowQueue::Which::count_))),
                                 int(1 + below(10))});
      break;
    default:
      schedule.strategy = below(2) == 0 ? sim::Strategy::random : sim::Strategy::seeded;
  }
  return schedule;
}

ExploreCase Explorer::fresh(ExploreStrategy strategy) {
  static const char* const kNames[] = {"mix", "random", "pct", "swarm", "enumerate", "exhaustive"};
  ExploreCase one;
  one.from = kNames[std::size_t(strategy)];
  one.seed = 1 + below(1'000'000'000);
  one.schedule = schedule(strategy);
  const double noises[] = {explored_.scenario.world.noise, 0, 0.5};
  one.noise = noises[below(3)];
  std::vector<FaultKind> kinds = kinds_;
  if (strategy == ExploreStrategy::swarm) std::erase_if(kinds, [this](FaultKind) { return below(2) == 0; });
  add_faults(one, int(below(strategy == ExploreStrategy::swarm ? 5 : 3)), kinds);
  return one;
}

// One that reached something new, with one thing changed.
ExploreCase Explorer::varied() {
  ExploreCase one = corpus_[below(corpus_.size())];
  one.from = "varied";
  switch (below(5)) {
    case 0:
      one.seed = 1 + below(1'000'000'000);
      break;
    case 1:
      one.schedule = schedule(ExploreStrategy(1 + below(3)));
      break;
    case 2:
      if (!one.rules.empty()) one.rules.erase(one.rules.begin() + std::ptrdiff_t(below(one.rules.size())));
      add_faults(one, 1, kinds_);
      break;
    case 3:
      if (!one.rules.empty()) {
        Rule& rule = one.rules[below(one.rules.size())];
        if (rule.when.call) rule.when.call = std::max<std::uint64_t>(1, *rule.when.call + below(5) - 2);
      }
      break;
    default:
      add_faults(one, 1, kinds_);
  }
  return one;
}

std::optional<ExploreCase> Explorer::enumerated() {
  if (places_left_.empty()) return std::nullopt;
  ExploreCase one;
  one.from = "enumerate";
  one.seed = explored_.scenario.world.seed;
  one.noise = explored_.scenario.world.noise;
  one.rules = {places_left_.back()};
  places_left_.pop_back();
  return one;
}

ExploreCase Explorer::as_written() const {
  ExploreCase one;
  one.from = "as written";
  one.seed = explored_.scenario.world.seed;
  one.schedule = explored_.scenario.world.schedule;
  one.noise = explored_.scenario.world.noise;
  return one;
}

bool Explorer::is_as_written(const ExploreCase& one) const {
  const sim::WorldPlan& world = explored_.scenario.world;
  return one.rules.empty() && one.seed == world.seed && one.noise == world.noise && one.schedule == world.schedule;
}

std::optional<ExploreCase> Explorer::draw() {
  if (options_.strategy == ExploreStrategy::enumerate) return enumerated();
  const std::uint64_t number = drawn_++;
  if (number == 0 && worker_ == 0) return as_written();
  if (!corpus_.empty() && below(2) == 0) return varied();
  const ExploreStrategy turns[] = {ExploreStrategy::random, ExploreStrategy::pct, ExploreStrategy::swarm};
  return fresh(options_.strategy == ExploreStrategy::mix ? turns[number % 3] : options_.strategy);
}

Explorer::Ran Explorer::run(ExploreCase one) {
  scenario_.world.seed = one.seed;
  scenario_.world.schedule = one.schedule;
  scenario_.world.noise = one.noise;
  scenario_.faults = explored_.scenario.faults;
  scenario_.faults.insert(scenario_.faults.end(), one.rules.begin(), one.rules.end());
  // The scenario's own faults fire in the scenario as it is written. Elsewhere another fault or another order may take
  // away what they were to strike.
  scenario_.drawn_faults = is_as_written(one) ? 0 : scenario_.faults.size();
  SimulationOptions options;
  options.wall_limit_s = options_.wall_limit_s;
  options.digest_gradients = needs_gradients(scenario_);
  places_.begin_run();
  options.watch = [this](const Op& op, runtime::TimeNs) {
    places_.see(op);
    coverage_.see(op);
  };
  record_ = Simulation(scenario_, options).run();
  decisions_ = std::max(decisions_, record_.schedule.decisions);
  Ran ran{std::move(one), judge_planned(scenario_, record_, golden_, Cases::explored), 0};
  ran.added = coverage_.add_run(record_, scenario_.faults, ran.end.how == PlannedEnd::How::stopped ? ran.end.why : "");
  if (ran.added > 0 && ran.end.how != PlannedEnd::How::red) {
    if (corpus_.size() == kCorpusMax) corpus_.erase(corpus_.begin() + std::ptrdiff_t(below(kCorpusMax / 2)));
    corpus_.push_back(ran.one);
  }
  return ran;
}

}  // namespace seeksim::harness
