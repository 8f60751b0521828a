// Faults by chance. When they come is one stream (a Poisson process); what each is, another, so that taking one out of
// the list moves no other. Durations are drawn on a logarithmic scale, between what a transport hides and what a
// watchdog waits for. No function of libm decides a time: its last bit changes with the machine, and a seed shall not.
#include <algorithm>

#include "harness/run/fault_draws.h"
#include "harness/scenario/fault_plan.h"
#include "harness/scenario/scenario.h"
#include "runtime/rules/host_math.h"
#include "runtime/seams/bounded.h"
#include "sim/random.h"

namespace seeksim::harness {
namespace {

using faults::FaultKind;
using faults::Mode;
using faults::Rule;
using runtime::TimeNs;

constexpr std::int64_t kFaultsMax = 100'000;  // of one run: more are a mistake in the rate

class Draws {
 public:
  Draws(std::uint64_t seed, std::int64_t run, std::int64_t number)
      : random_(seed, sim::Stream((std::uint64_t(run) + 1) << 24 | std::uint64_t(number))) {}
  double unit() { return random_.unit(); }
  bool chance(double p) { return unit() < p; }
  int below(int n) { return int(random_.below(std::uint32_t(n))); }
  double between(double least, double most) { return least + (most - least) * unit(); }
  TimeNs duration(TimeNs least, TimeNs most) {
    return runtime::to_time_ns(double(least) *
                               runtime::host_exp(unit() * runtime::host_log(double(most) / double(least))));
  }

 private:
  sim::Random random_;
};

TimeNs watchdog(const Scenario& scenario) { return scenario.train.recovery.watchdog_ns; }

void on_a_link(const Scenario& scenario, Draws& draw, Rule& rule) {
  const int ranks = scenario.world.ranks();
  rule.from = draw.below(ranks);
  rule.to = (*rule.from + 1 + draw.below(ranks - 1)) % ranks;
  rule.both_directions = draw.chance(0.5);
}

void cut_a_link(const Scenario& scenario, Draws& draw, Rule& rule) {
  on_a_link(scenario, draw, rule);
  if (draw.chance(0.2)) {
    rule.mode = Mode::permanent;
    return;
  }
  rule.mode = Mode::transient;
  rule.down_ns = draw.duration(runtime::kMillisecond, watchdog(scenario));
  rule.cycles = 1 + draw.below(3);
  if (rule.cycles > 1) rule.up_ns = draw.duration(runtime::kMillisecond, watchdog(scenario));
}

void slow_down(TimeNs horizon, Draws& draw, double worst, Rule& rule) {
  rule.factor = draw.between(1.05, worst);
  const Mode modes[] = {Mode::constant, Mode::periodic, Mode::ramp};
  rule.mode = modes[draw.below(3)];
  if (rule.mode == Mode::periodic) {
    rule.period_ns = draw.duration(horizon / 100 + 1, horizon + 1);
    rule.duty = draw.between(0.05, 0.5);
  }
  if (rule.mode == Mode::ramp) rule.ramp_ns = draw.duration(horizon / 100 + 1, horizon + 1);
}

// Everything but when and, where the kind has one, on which rank.
void fill(const Scenario& scenario, TimeNs horizon, Draws& draw, Rule& rule) {
  switch (rule.kind) {
    case FaultKind::collective_timeout:
      rule.mode = draw.chance(0.2) ? Mode::never : Mode::late;
      if (rule.mode == Mode::late) rule.delay_ns = draw.duration(runtime::kMillisecond, watchdog(scenario) / 2);
      break;
    case FaultKind::link_drop:
      cut_a_link(scenario, draw, rule);
      break;
    case FaultKind::slow_link:
      on_a_link(scenario, draw, rule);
      rule.factor = draw.between(0.1, 0.9);
      rule.delay_ns = draw.duration(runtime::kMicrosecond, runtime::kMillisecond);
      break;
    case FaultKind::straggler:
      slow_down(horizon, draw, 3, rule);
      break;
    case FaultKind::slow_disk:
      slow_down(horizon, draw, 10, rule);
      break;
    case FaultKind::message_corrupt:
      rule.bit = std::uint64_t(draw.below(1 << 20));
      break;
    case FaultKind::pause:
    case FaultKind::data_stall:
    case FaultKind::zombie_message:
      rule.delay_ns = draw.duration(runtime::kMicrosecond, watchdog(scenario) / 2);
      break;
    default:  // a rank and a time say it all
      break;
  }
}

bool has_a_link(FaultKind kind) { return kind == FaultKind::link_drop || kind == FaultKind::slow_link; }

constexpr int kForGood = 1 << 30;

}  // namespace

// Where the job is started again with all ranks, none; but what lasts would be there again each time.
int ranks_lost(const Scenario& scenario, const Rule& rule) {
  const bool starts_again = scenario.train.recovery.restarts_max > 0;
  switch (rule.kind) {
    case FaultKind::rank_crash:
    case FaultKind::kernel_hang:
    case FaultKind::device_error:
      return starts_again ? 0 : 1;
    case FaultKind::node_crash:
      return starts_again ? 0 : scenario.world.ranks_per_node;
    case FaultKind::collective_timeout:
      return starts_again || rule.mode != Mode::never ? 0 : 1;
    case FaultKind::link_drop:
      if (!starts_again) return 1;
      return rule.mode == Mode::permanent ? kForGood : 0;
    case FaultKind::slow_link:
    case FaultKind::straggler:
    case FaultKind::slow_disk:
      return starts_again ? kForGood : 0;
    default:
      return 0;
  }
}

Rule draw_fault(const Scenario& scenario, FaultKind kind, sim::Random& random, TimeNs horizon) {
  Draws draw(random.next(), 0, 0);
  Rule rule;
  rule.kind = kind;
  if (kind == FaultKind::node_crash)
    rule.when.node = draw.below(scenario.world.nodes);
  else if (!has_a_link(kind))
    rule.when.rank = draw.below(scenario.world.ranks());
  rule.when.at_ns = runtime::to_time_ns(draw.unit() * double(horizon));
  fill(scenario, horizon, draw, rule);
  return rule;
}

namespace {

// Faults a nanosecond.
double rate(const Scenario& scenario, TimeNs horizon) {
  const Random& plan = scenario.planned.random;
  const double hour = 3600.0 * double(runtime::kSecond);
  switch (plan.rate_of) {
    case RateOf::rank_hour:
      return plan.rate * plan.acceleration * scenario.world.ranks() / hour;
    case RateOf::node_day:
      return plan.rate * plan.acceleration * scenario.world.nodes / (24 * hour);
    case RateOf::run:
      break;
  }
  return plan.rate * plan.acceleration / double(horizon);
}

// In a swarm each run has its own mix: about half of the kinds do not come at all.
std::vector<std::pair<FaultKind, double>> weights(const Random& plan, Draws& draw) {
  std::vector<std::pair<FaultKind, double>> weights = plan.weights;
  if (!plan.swarm) return weights;
  for (auto& [kind, weight] : weights) {
    const double share = draw.unit();
    weight *= draw.chance(0.5) ? 0 : share;
  }
  return weights;
}

FaultKind pick(const std::vector<std::pair<FaultKind, double>>& weights, double sum, Draws& draw) {
  double at = draw.unit() * sum;
  for (const auto& [kind, weight] : weights) {
    at -= weight;
    if (at < 0) return kind;
  }
  return weights.back().first;
}

}  // namespace

std::vector<Rule> draw_faults(const Scenario& scenario, std::int64_t number, TimeNs horizon) {
  const Random& plan = scenario.planned.random;
  Draws when(scenario.world.seed, number, 0);
  const auto mix = weights(plan, when);
  double sum = 0;
  for (const auto& [kind, weight] : mix) sum += weight;
  const double per_ns = rate(scenario, horizon) * (plan.swarm ? 2 * when.unit() : 1);
  std::vector<Rule> rules;
  if (sum <= 0 || per_ns <= 0) return rules;
  int budget = plan.ranks_lost_max;
  double at = 0;
  for (std::int64_t i = 1; i <= kFaultsMax; ++i) {
    at += -runtime::host_log(1 - when.unit()) / per_ns;
    if (at >= double(horizon)) break;
    Draws draw(scenario.world.seed, number, i);
    Rule rule;
    rule.kind = pick(mix, sum, draw);
    rule.when.at_ns = runtime::to_time_ns(at);
    if (!has_a_link(rule.kind)) rule.when.rank = draw.below(scenario.world.ranks());
    fill(scenario, horizon, draw, rule);
    if (ranks_lost(scenario, rule) > budget) continue;
    budget -= ranks_lost(scenario, rule);
    rules.push_back(rule);
  }
  return rules;
}

}  // namespace seeksim::harness
