#include "harness/campaign/study_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include <nlohmann/json.hpp>

#include "harness/campaign/arrivals.h"
#include "harness/campaign/saves.h"
#include "harness/campaign/study_file.h"
#include "harness/input/problem.h"
#include "harness/oracles/goodput.h"
#include "harness/run/forked.h"
#include "runtime/seams/bounded.h"

namespace seeksim::harness::campaign {
namespace {

constexpr std::size_t kPoliciesMax = 2000;
constexpr std::size_t kCampaignsMax = 200'000;
// Times between two checkpoints that are tried: Young's and Daly's, times these.
constexpr double kTried[] = {0.125, 0.18, 0.25, 0.35, 0.5, 0.71, 1, 1.41, 2, 2.83, 4, 5.66, 8};

TimeNs ns(double s) { return runtime::to_time_ns(s * 1e9); }

// One study with all its seeds: a policy, or one of the intervals that are tried for it.
struct Variant {
  Study study;
  Costs costs;
  std::size_t policy = 0;
  double tried_every_s = 0;  // 0: the policy itself
};

double mtbf_s_of(const Study& study) {
  double per_hour = failures_per_hour(study);
  per_hour += double(study.incidents.size()) / study.hours;
  return per_hour > 0 ? 3600 / per_hour : 0;
}

std::vector<Variant> variants_of(std::vector<Study> studies) {
  std::vector<Variant> all;
  for (std::size_t i = 0; i < studies.size(); ++i) {
    const Study& study = studies[i];
    all.push_back({study, given_costs(study), i, 0});
    if (!study.best_interval) continue;
    const double cost = std::max(0.001, study.tiers.back().blocks_s);
    for (const double factor : kTried) {
      Variant variant{study, given_costs(study), i, factor * best_interval(cost, mtbf_s_of(study))};
      variant.study.tiers.back().every_s = variant.tried_every_s;
      variant.study.tiers.back().every_steps = 0;
      all.push_back(std::move(variant));
    }
  }
  return all;
}

std::optional<YoungDaly> formula_of(const PolicyResult& policy) {
  if (policy.study.tiers.empty()) return std::nullopt;
  YoungDaly f;
  double hours = 0, stops = 0, down = 0;
  for (const CampaignResult& one : policy.campaigns) {
    hours += double(one.whole_ns) / 3600e9;
    stops += double(one.interruptions);
    for (const Spent what : {Spent::detection, Spent::agreement, Spent::waiting, Spent::swapping, Spent::restarting,
                             Spent::reading, Spent::starting, Spent::rebuilding})
      down += double(one.spent.of(what)) / 1e9;
  }
  if (stops == 0) return std::nullopt;
  const TierCosts& costs = policy.costs.tiers.back();
  const double step_s = double(policy.costs.step_ns) / 1e9;
  f.cost_s = double(costs.blocks_ns) / 1e9;
  f.interval_s = double(steps_between(policy.study.tiers.back(), policy.costs.step_ns)) * step_s + f.cost_s;
  f.mtbf_s = hours * 3600 / stops;
  f.down_s = down / stops;
  f.goodput = 1 - expected_waste(f.cost_s, f.interval_s, f.mtbf_s, f.down_s);
  f.best_interval_s = best_interval(f.cost_s, f.mtbf_s);
  return f;
}

std::vector<Study> policies_of(const std::string& file, const std::vector<std::string>& sets, Study& first) {
  first = load_study(file, sets);
  std::vector<Study> studies;
  std::vector<Problem> problems;
  const std::vector<Settings> rows = first.sweep.empty() ? std::vector<Settings>{{}} : rows_of(first.sweep, first.seed);
  if (rows.size() > kPoliciesMax)
    throw BadInput(file, fmt::format("the sweep has {} policies", rows.size()),
                   fmt::format("At most {} are compared.", kPoliciesMax));
  for (const Settings& row : rows) {
    try {
      studies.push_back(load_study(file, sets, &row));
    } catch (const BadInput& bad) {
      for (const Problem& problem : bad.problems()) {
        const auto known = std::find_if(problems.begin(), problems.end(),
                                        [&](const Problem& p) { return p.text() == problem.text(); });
        if (known == problems.end()) problems.push_back(problem);
      }
    }
  }
  if (!problems.empty()) throw BadInput(std::move(problems));
  return studies;
}

}  // namespace

Costs given_costs(const Study& study) {
  Costs costs;
  costs.step_ns = std::max<TimeNs>(1, ns(study.step_s));
  costs.start_ns = ns(study.start_s);
  for (const Tier& tier : study.tiers)
    costs.tiers.push_back({ns(tier.blocks_s), ns(std::max(tier.blocks_s, tier.write_s.value_or(0))), ns(tier.read_s)});
  return costs;
}

Estimated PolicyResult::of(const Metric& metric) const {
  std::vector<double> values;
  for (const CampaignResult& one : campaigns) values.push_back(metric.of(study, one));
  return estimated(values);
}

RunLengths PolicyResult::runs() const {
  RunLengths all;
  for (const CampaignResult& one : campaigns) all.add(one.runs);
  return all;
}

Estimated PolicyResult::share(Spent spent) const {
  std::vector<double> values;
  for (const CampaignResult& one : campaigns)
    values.push_back(double(one.spent.of(spent)) / double(std::max<TimeNs>(1, one.whole_ns)));
  return estimated(values);
}

Estimated PolicyResult::beyond(const Metric& metric, const PolicyResult& other) const {
  std::vector<double> values;
  for (std::size_t i = 0; i < std::min(campaigns.size(), other.campaigns.size()); ++i)
    values.push_back(metric.of(study, campaigns[i]) - metric.of(other.study, other.campaigns[i]));
  return estimated(values);
}

std::string what_is_wrong(const CampaignResult& result) {
  std::string wrong = what_is_wrong(result.spent, result.whole_ns, result.steps, result.step_ns);
  if (!wrong.empty()) return wrong;
  TimeNs lost = result.outside_ns;
  for (const CauseToll& toll : result.tolls) lost += toll.lost_ns;
  const TimeNs wanted = result.whole_ns - result.spent.of(Spent::useful);
  if (lost == wanted) return "";
  return fmt::format("{} ns are lost, and the causes account for {} ns", wanted, lost);
}

namespace {
// By class, without the empty ones at the end.
Json to_json(const RunLengths::Counts& counts) {
  Json list = Json::array();
  for (const std::int64_t count : counts) list.push_back(count);
  while (!list.empty() && list.back() == 0) list.erase(list.size() - 1);
  return list;
}

Json to_json(const RunLengths& runs) {
  return {{"ended", to_json(runs.ended())}, {"went_on", to_json(runs.went_on())}};
}
}  // namespace

Json to_json(const CampaignResult& r) {
  Json spent = Json::object(), tolls = Json::array();
  for (std::size_t i = 0; i < kSpent; ++i) spent[name(Spent(i))] = r.spent.of(Spent(i));
  for (const CauseToll& toll : r.tolls)
    tolls.push_back({{"cause", toll.name}, {"interruptions", toll.interruptions}, {"lost_ns", toll.lost_ns}});
  return {{"whole_ns", r.whole_ns},           {"step_ns", r.step_ns},           {"steps", r.steps},
          {"steps_redone", r.steps_redone},   {"failures", r.failures},         {"interruptions", r.interruptions},
          {"planned_stops", r.planned_stops}, {"spares_used", r.spares_used},   {"checkpoints", r.checkpoints},
          {"restored", r.restored},           {"from_nothing", r.from_nothing}, {"outside_ns", r.outside_ns},
          {"spent_ns", std::move(spent)},     {"causes", std::move(tolls)},     {"runs", to_json(r.runs)}};
}

CampaignResult campaign_from(const Json& json) {
  CampaignResult r;
  json.at("whole_ns").get_to(r.whole_ns);
  json.at("step_ns").get_to(r.step_ns);
  json.at("steps").get_to(r.steps);
  json.at("steps_redone").get_to(r.steps_redone);
  json.at("failures").get_to(r.failures);
  json.at("interruptions").get_to(r.interruptions);
  json.at("planned_stops").get_to(r.planned_stops);
  json.at("spares_used").get_to(r.spares_used);
  json.at("checkpoints").get_to(r.checkpoints);
  json.at("restored").get_to(r.restored);
  json.at("from_nothing").get_to(r.from_nothing);
  json.at("outside_ns").get_to(r.outside_ns);
  for (std::size_t i = 0; i < kSpent; ++i) r.spent.add(Spent(i), json.at("spent_ns").at(name(Spent(i))).get<TimeNs>());
  r.runs = RunLengths::from(json.at("runs").at("ended").get<std::vector<std::int64_t>>(),
                            json.at("runs").at("went_on").get<std::vector<std::int64_t>>());
  for (const Json& toll : json.at("causes"))
    r.tolls.push_back({toll.at("cause").get<std::string>(), toll.at("interruptions").get<std::int64_t>(),
                       toll.at("lost_ns").get<TimeNs>()});
  return r;
}

StudyResult run_study(const std::string& file, const std::vector<std::string>& sets, int processes) {
  const auto start = std::chrono::steady_clock::now();
  StudyResult result;
  const std::vector<Variant> variants = variants_of(policies_of(file, sets, result.study));
  std::size_t seeds = 0;  // a sweep may vary them
  for (const Variant& variant : variants) seeds = std::max(seeds, std::size_t(variant.study.seeds));
  if (seeds * variants.size() > kCampaignsMax)
    throw BadInput(file, fmt::format("{} campaigns", seeds * variants.size()),
                   fmt::format("At most {} are run: use fewer seeds or policies.", kCampaignsMax));
  Forked work;
  work.count = variants.size() * seeds;
  work.processes = processes;
  work.jobs_each = int(std::max<std::size_t>(1, work.count / 64));
  work.run = [&](std::size_t job, const Print&) {
    const Variant& variant = variants[job / seeds];
    Outcome outcome;
    if (std::int64_t(job % seeds) < variant.study.seeds)
      outcome.report = to_json(run_campaign(variant.study, variant.costs, variant.study.seed + job % seeds));
    return outcome;
  };
  work.name = [&](std::size_t job) {
    return fmt::format("policy {} seed {}", variants[job / seeds].policy, job % seeds);
  };
  work.done = [](std::size_t, const std::string&, const Outcome&) {};
  std::vector<Outcome> outcomes = processes == 1 ? run_here(work) : run_forked(work);
  outcomes.resize(work.count);  // a signal ends it before
  for (std::size_t v = 0; v < variants.size(); ++v) {
    const Variant& variant = variants[v];
    PolicyResult one;
    one.study = variant.study;
    one.costs = variant.costs;
    for (std::size_t seed = 0; seed < std::size_t(variant.study.seeds); ++seed) {
      const Outcome& outcome = outcomes[v * seeds + seed];
      for (const std::string& problem : outcome.problems) result.broken.push_back(problem);
      if (!outcome.report.contains("whole_ns")) continue;
      one.campaigns.push_back(campaign_from(outcome.report));
      const std::string wrong = what_is_wrong(one.campaigns.back());
      if (one.wrong.empty() && !wrong.empty()) one.wrong = fmt::format("seed {}: {}", variant.study.seed + seed, wrong);
    }
    if (variant.tried_every_s > 0) {
      result.policies[variant.policy].tried.push_back({variant.tried_every_s, one.of(*find_metric("goodput"))});
      continue;
    }
    one.formula = formula_of(one);
    result.policies.push_back(std::move(one));
  }
  if (!result.study.sweep.empty()) {
    const std::vector<Settings> rows = rows_of(result.study.sweep, result.study.seed);
    for (std::size_t i = 0; i < result.policies.size(); ++i) result.policies[i].settings = rows[i];
  }
  result.wall_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return result;
}

}  // namespace seeksim::harness::campaign
