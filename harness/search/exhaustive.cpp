#include "harness/search/exhaustive.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include <nlohmann/json.hpp>

#include "faults/trigger.h"
#include "harness/input/problem.h"
#include "harness/loading/schedule_string.h"
#include "harness/run/fault_places.h"
#include "harness/run/planned_run.h"
#include "harness/search/exploration.h"
#include "harness/search/shrink.h"
#include "harness/simulate/simulate.h"
#include "harness/verdict/checks.h"
#include "runtime/backend/machine/interrupts.h"

namespace seeksim::harness {
namespace {

using faults::Rule;
using How = PlannedEnd::How;

std::uint64_t mix(std::uint64_t a, std::uint64_t b) {
  std::uint64_t h = (a ^ b) * 0x9fb21c651e98df25ull;
  return h ^ h >> 33;
}

// Which rank a rule strikes must not depend on which comes first: ranks would then share the count of firings, and the
// simulator does not know of that.
void check_rules(const Explored& explored) {
  const Scenario& scenario = explored.scenario;
  for (std::size_t i = 0; i < scenario.faults.size(); ++i) {
    const Rule& rule = scenario.faults[i];
    const std::string place = fmt::format("{}: faults.{}", scenario.file, i);
    if (!rule.when.rank && !rule.from && rule.count != 0)
      throw BadInput(place, "it does not say which rank it strikes, so it strikes the first that comes",
                     "Name the rank: with --strategy exhaustive it must not depend on the order.");
    if (rule.when.at_ns && *rule.when.at_ns > 0)
      throw BadInput(place, "it strikes at a time, and in an untimed world the training is over at once",
                     "Name the operation instead: \"op\", \"phase\", \"call\".");
  }
}

void check_scenario(const Explored& explored) {
  const Scenario& scenario = explored.scenario;
  const int ranks = scenario.world.ranks();
  if (ranks > kExhaustiveRanksMax)
    throw BadInput(
        scenario.file,
        fmt::format("it has {} ranks, and --strategy exhaustive is for {} at most", ranks, kExhaustiveRanksMax),
        "Try --strategy mix, or fewer ranks with --set.");
  if (!scenario.own_faults.empty())
    throw BadInput(scenario.file, "it has faults of your own program, and it is unknown what ranks share through them",
                   "Try --strategy mix.");
  if (!scenario.planned.random.weights.empty())
    throw BadInput(scenario.file, "its faults are drawn", "Enumerate them (fault_plan.enumerate), or write them down.");
  check_rules(explored);
}

class Exhaustion {
 public:
  Exhaustion(const Explored& explored, const Golden* golden, const ExhaustiveOptions& options, Exhausted& gone)
      : explored_(explored), golden_(golden), options_(options), gone_(gone), scenario_(explored.scenario) {
    scenario_.world.schedule = {};
    scenario_.world.schedule.strategy = sim::Strategy::untimed;
  }

  ExploreResult run() {
    std::vector<std::vector<Rule>> plans;
    if (scenario_.planned.enumerated.kinds.empty()) {
      plans.push_back({});
    } else {
      for (FaultPlace& place : places_of(explored_.scenario)) plans.push_back({std::move(place.rule)});
    }
    scenario_.planned = {};
    scenario_.planned.stops = explored_.scenario.planned.stops;
    gone_.plans = plans.size();
    for (const std::vector<Rule>& rules : plans) {
      if (over()) break;
      search(rules);
    }
    result_.complete = gone_.complete();
    result_.wall_s = seconds();
    return std::move(result_);
  }

 private:
  double seconds() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }
  bool over() const {
    return seconds() >= options_.budget_s || runtime::interrupted() != 0 ||
           (options_.findings_max > 0 && result_.found.size() >= options_.findings_max);
  }

  void search(const std::vector<Rule>& rules) {
    scenario_.faults = explored_.scenario.faults;
    scenario_.faults.insert(scenario_.faults.end(), rules.begin(), rules.end());
    scenario_.drawn_faults = scenario_.faults.size();  // that one does not strike in some order is no failure
    sim::OrderSearch orders(options_.orders);
    bool fired = scenario_.faults.empty();
    bool through = false, cut_off = false;
    while (!over() && (options_.runs_max == 0 || orders.counts().runs < options_.runs_max)) {
      through = !orders.begin_run();
      if (through) break;
      SimulationOptions simulation;
      simulation.wall_limit_s = options_.wall_limit_s;
      simulation.digest_gradients = needs_gradients(scenario_);
      simulation.steering = &orders;
      const RunRecord record = Simulation(scenario_, simulation).run();
      if (runtime::interrupted() != 0) break;
      if (!orders.end_run()) continue;
      cut_off = cut_off || record.end == sim::WorldEnd::out_of_wall_time;  // what would have followed was not seen
      fired =
          fired || std::any_of(record.faults.begin(), record.faults.end(), [](const auto& f) { return f.fired > 0; });
      gone_.outcomes.insert(outcome_of(orders.outcome(), record));
      judge(record, rules);
    }
    add(orders.counts());
    gone_.left += orders.left();
    gone_.plans_through += through && !cut_off ? 1 : 0;
    if (through && !fired && rules.empty()) tell_nothing_struck();
  }

  void add(const sim::OrderSearch::Counts& counts) {
    gone_.orders.runs += counts.runs;
    gone_.orders.given_up += counts.given_up;
    gone_.orders.steps += counts.steps;
    gone_.orders.decisions += counts.decisions;
    gone_.orders.races += counts.races;
    gone_.orders.points += counts.points;
    gone_.orders.depth = std::max(gone_.orders.depth, counts.depth);
  }

  void judge(const RunRecord& record, const std::vector<Rule>& rules) {
    ++result_.cases;
    ++result_.by["exhaustive"];
    const PlannedEnd end = judge_planned(scenario_, record, golden_, Cases::explored);
    if (end.how == How::stopped) ++result_.stops[end.why.substr(0, 60)];
    if (end.how != How::red) return;
    ++result_.red;
    const std::string check =
        end.red.empty() ? (end.status == ExitStatus::no_progress ? "progress" : "bug") : end.red.front();
    const auto [at, is_new] = result_.found.try_emplace(finding_key(check, end.why));
    ExploreResult::Found& found = at->second;
    ++found.times;
    if (!is_new) return;
    found.check = check;
    found.why = end.why;
    found.after_s = seconds();
    ExploreCase one;
    one.from = "exhaustive";
    one.seed = scenario_.world.seed;
    one.noise = scenario_.world.noise;
    one.rules = rules;
    one.schedule = scenario_.world.schedule;
    one.schedule.deviations = record.schedule.choices;
    found.document = case_document(explored_, one, nullptr);
    found.document["why"] = fmt::format("Found by seeksim explore: {}", end.why);
    if (rules.empty()) {
      Scenario as_it_is = explored_.scenario;
      as_it_is.world.schedule = one.schedule;
      found.replay = schedule_string(as_it_is);
    }
    const Trial trial = try_scenario(found.document, explored_.scenario.file, 3 * options_.wall_limit_s);
    found.shown = end.red.empty() ? trial.status == end.status
                                  : std::find(trial.red.begin(), trial.red.end(), check) != trial.red.end();
    if (options_.tell) options_.tell(found);
  }

  // As in every run: a fault that never strikes makes it red.
  void tell_nothing_struck() {
    ExploreResult::Found found;
    found.check = "faults_fired";
    found.why = "no fault of the scenario strikes in any order";
    found.document = explored_.document;
    found.after_s = seconds();
    found.times = 1;
    const auto [at, is_new] = result_.found.emplace(finding_key(found.check, found.why), std::move(found));
    if (is_new && options_.tell) options_.tell(at->second);
  }

  const Explored& explored_;
  const Golden* golden_;
  const ExhaustiveOptions& options_;
  Exhausted& gone_;
  Scenario scenario_;  // the one that is run
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  ExploreResult result_;
};

}  // namespace

std::uint64_t outcome_of(std::uint64_t heard, const RunRecord& run) {
  std::uint64_t all = mix(heard, std::uint64_t(run.end));
  for (const RankRecord& rank : run.ranks)
    all = mix(mix(all, std::uint64_t(rank.how)), std::uint64_t(rank.steps_committed));
  for (const runtime::StepRecord& step : run.steps) all = mix(mix(all, std::uint64_t(step.step)), step.epoch);
  return all;
}

ExploreResult explore_exhaustively(const Explored& explored, const Golden* golden, const ExhaustiveOptions& options,
                                   Exhausted& gone_through) {
  check_scenario(explored);
  return Exhaustion(explored, golden, options, gone_through).run();
}

std::string exhausted_text(const Exhausted& gone) {
  const sim::OrderSearch::Counts& n = gone.orders;
  std::string out = fmt::format(
      "  orders    {} run{}, {} given up as known (sleep sets); {} steps at most; of {} decisions {} made a "
      "difference; "
      "{} races; {} outcome{}\n",
      n.runs, n.runs == 1 ? "" : "s", n.given_up, n.depth, n.decisions, n.points, n.races, gone.outcomes.size(),
      gone.outcomes.size() == 1 ? "" : "s");
  const std::string plans = gone.plans == 1 ? "" : fmt::format(" of each of {} fault plans", gone.plans);
  if (gone.complete())
    return out + fmt::format("  complete  every order of steps{} that makes a difference was run\n", plans);
  out += fmt::format("  not complete: the budget was over, and {} way{} left that {} known of", gone.left,
                     gone.left == 1 ? " is" : "s are", gone.left == 1 ? "is" : "are");
  if (gone.plans > 1) out += fmt::format("; {} of {} fault plans are through", gone.plans_through, gone.plans);
  return out + '\n';
}

Json exhausted_json(const Exhausted& gone) {
  const sim::OrderSearch::Counts& n = gone.orders;
  return {{"plans", gone.plans},
          {"plans_through", gone.plans_through},
          {"complete", gone.complete()},
          {"left", gone.left},
          {"runs", n.runs},
          {"given_up", n.given_up},
          {"steps", n.steps},
          {"steps_max", n.depth},
          {"decisions", n.decisions},
          {"points", n.points},
          {"races", n.races},
          {"outcomes", gone.outcomes.size()}};
}

}  // namespace seeksim::harness
