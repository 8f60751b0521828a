#include "harness/oracles/goodput.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "harness/record/run_record.h"
#include "runtime/seams/time.h"

#include <nlohmann/json.hpp>

namespace seeksim::harness {
namespace {

using runtime::seconds;

// When the fault behind a notice struck: the last firing before it, if it came after the notice before. -1: none.
std::vector<TimeNs> all_firings(const RunRecord& run) {
  std::vector<TimeNs> all;
  for (const faults::RuleStatus& rule : run.faults) all.insert(all.end(), rule.fired_ns.begin(), rule.fired_ns.end());
  std::sort(all.begin(), all.end());
  return all;
}

std::string spread_text(const Spread& s) {
  if (s.n == 0) return "none seen";
  return fmt::format("mean {:.4g} s, median {:.4g} s, at most {:.4g} s ({} of them)", s.mean, s.p50, s.max, s.n);
}

Json spread_json(const Spread& s) { return {{"n", s.n}, {"mean", s.mean}, {"p50", s.p50}, {"max", s.max}}; }

// Durations have noise, so a part of the loss may come out below nothing.
std::string percent(double share) { return fmt::format("{:.3g} %", 100 * std::max(share, 0.0)); }

}  // namespace

Spread spread(std::vector<double> values) {
  if (values.empty()) return {};
  std::sort(values.begin(), values.end());
  const double sum = std::accumulate(values.begin(), values.end(), 0.0);
  return {values.size(), sum / double(values.size()), values[values.size() / 2], values.back()};
}

double best_interval(double cost, double mtbf) { return std::sqrt(2 * cost * mtbf); }

double expected_waste(double cost, double interval, double mtbf, double restart) {
  return cost / interval + interval / (2 * mtbf) + restart / mtbf;
}

Goodput goodput_of(const RunRecord& run, double step_s, std::int64_t every_steps) {
  const Ledger& ledger = run.detection.ledger;
  Goodput g;
  g.virtual_s = seconds(run.virtual_ns);
  g.step_s = step_s;
  g.steps = std::int64_t(run.steps.size()) - run.training.resumed_from;
  g.steps_redone = run.training.undone_steps;
  g.failures = std::int64_t(ledger.interruptions().size());
  for (const Checkpoint& one : run.training.checkpoints) {
    ++(one.complete ? g.checkpoints : g.checkpoints_given_up);
    g.checkpoints_s += seconds(one.blocked_ns);
  }
  g.ettr = g.virtual_s > 0 ? double(g.steps) * step_s / g.virtual_s : 0;
  g.redone_s = double(g.steps_redone) * step_s;
  g.rest_s = g.virtual_s * (1 - g.ettr) - g.redone_s - g.checkpoints_s;

  std::map<std::string, std::uint64_t> by_kind;
  for (const faults::RuleStatus& rule : run.faults) by_kind[std::string(name(rule.kind))] += rule.fired;
  g.faults.assign(by_kind.begin(), by_kind.end());

  const std::vector<TimeNs> firings = all_firings(run);
  std::vector<double> detection, recovery, down;
  TimeNs before = -1;
  for (const Interruption& one : ledger.interruptions()) {
    const auto after = std::upper_bound(firings.begin(), firings.end(), one.detected_ns);
    const TimeNs struck = after == firings.begin() ? -1 : *(after - 1);
    const bool its_own = struck > before;
    if (its_own) detection.push_back(seconds(one.detected_ns - struck));
    if (one.resumed_ns >= 0) recovery.push_back(std::max(0.0, seconds(one.resumed_ns - one.detected_ns) - step_s));
    if (its_own && one.resumed_ns >= 0) down.push_back(std::max(0.0, seconds(one.resumed_ns - struck) - step_s));
    before = one.detected_ns;
  }
  g.detection_s = spread(std::move(detection));
  g.recovery_s = spread(std::move(recovery));

  if (g.checkpoints > 0 && every_steps > 0 && g.failures > 0) {
    Goodput::Formula f;
    f.cost_s = g.checkpoints_s / double(g.checkpoints);
    f.interval_s = double(every_steps) * step_s + f.cost_s;
    f.mtbf_s = g.virtual_s / double(g.failures);
    f.restart_s = spread(std::move(down)).mean;
    f.waste = expected_waste(f.cost_s, f.interval_s, f.mtbf_s, f.restart_s);
    f.best_interval_s = best_interval(f.cost_s, f.mtbf_s);
    g.formula = f;
  }
  return g;
}

Json goodput_json(const Goodput& g) {
  Json json = {{"virtual_s", g.virtual_s},
               {"step_s", g.step_s},
               {"steps", g.steps},
               {"steps_redone", g.steps_redone},
               {"failures", g.failures},
               {"ettr", g.ettr},
               {"redone_s", g.redone_s},
               {"checkpoints_s", g.checkpoints_s},
               {"rest_s", g.rest_s},
               {"checkpoints", g.checkpoints},
               {"checkpoints_given_up", g.checkpoints_given_up},
               {"detection_s", spread_json(g.detection_s)},
               {"recovery_s", spread_json(g.recovery_s)}};
  json["faults"] = Json::object();
  for (const auto& [kind, n] : g.faults) json["faults"][kind] = n;
  if (!g.formula) return json;
  const Goodput::Formula& f = *g.formula;
  json["young_daly"] = {{"cost_s", f.cost_s}, {"interval_s", f.interval_s},
                        {"mtbf_s", f.mtbf_s}, {"restart_s", f.restart_s},
                        {"waste", f.waste},   {"best_interval_s", f.best_interval_s}};
  return json;
}

std::string goodput_text(const Goodput& g) {
  std::vector<std::string> kinds;
  for (const auto& [kind, n] : g.faults) kinds.push_back(fmt::format("{} {}", n, kind));
  std::string text = fmt::format("  goodput   {} of {:.6g} h are steps that last: {} steps of {:.4g} s (ETTR)\n",
                                 percent(g.ettr), g.virtual_s / 3600, g.steps, g.step_s);
  const double all = std::max(g.virtual_s, 1e-9);
  text += fmt::format("  lost      {} steps done again {}, {} checkpoints {}{}, {} failures {}\n", g.steps_redone,
                      percent(g.redone_s / all), g.checkpoints, percent(g.checkpoints_s / all),
                      g.checkpoints_given_up > 0 ? fmt::format(" ({} given up)", g.checkpoints_given_up) : "",
                      g.failures, percent(g.rest_s / all));
  text += fmt::format("  faults    {}\n", kinds.empty() ? "none" : fmt::format("{}", fmt::join(kinds, ", ")));
  text += fmt::format("  noticed   {}\n", spread_text(g.detection_s));
  text += fmt::format("  recovered {}\n", spread_text(g.recovery_s));
  if (!g.formula) return text;
  const Goodput::Formula& f = *g.formula;
  return text + fmt::format(
                    "  young     {} lost, and {} by Young and Daly: a checkpoint of {:.4g} s each {:.4g} s, a "
                    "failure each {:.4g} s, {:.4g} s to be back; best each {:.4g} s\n",
                    percent(1 - g.ettr), percent(f.waste), f.cost_s, f.interval_s, f.mtbf_s, f.restart_s,
                    f.best_interval_s);
}

}  // namespace seeksim::harness
