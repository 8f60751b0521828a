// The oracle: campaigns against the step-by-step simulation of the real runtime, which runs a small world in shapes.
// What a step, a checkpoint, a start and a failure cost is measured on that simulator, with a rank killed at the moment
// that is asked for. Fed with the same failures, each step is committed at the same time, to a ten-thousandth; with
// failures of its own, goodput has the same distribution. Both are seen to fail where a cost is forgotten.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>

#include "harness/campaign/campaign.h"
#include "harness/campaign/stretch.h"
#include "harness/loading/load.h"
#include "harness/simulate/simulate.h"
#include "sim/random.h"
#include "tests/campaign/studies.h"

namespace seeksim::harness::campaign {
namespace {

using namespace testing;

// Two ranks, steps of 76 s, checkpoints that block 38 s: the world of scenarios/campaigns/young_daly.json, steady.
const char* const kWorld = R"({"name": "small", "seed": 1, "training_seed": 1, "numerics": "shapes",
"model": {"family": "gpt2", "layers": 1, "width": 8, "heads": 2, "context": 4, "vocab": 16},
"data": {"synthetic": true},
"world": {"nodes": 2, "ranks_per_node": 1, "network": "tcp", "race_detector": false, "noise": 0, "steady": true,
          "device": {"launch_us": 1000000}, "storage": {"write_gb_s": 2e-6, "read_gb_s": 10}},
"deepspeed": {"train_batch_size": 2, "train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 0},
              "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}}},
"steps": 400,
"recovery": {"policy": "stop", "watchdog_s": 600, "restarts": 100000, "restart_s": 60},
"checkpoint": {"path": "checkpoints", "every_steps": 10, "async": false}})";

RunRecord simulated(const std::vector<Incident>& failures, std::int64_t steps, std::int64_t every) {
  LoadOptions options;
  options.sets = {"steps=" + std::to_string(steps), "checkpoint.every_steps=" + std::to_string(every)};
  Scenario scenario = load_scenario_text(kWorld, "world.json", options);
  for (const Incident& one : failures) {
    faults::Rule rule;
    rule.kind = faults::FaultKind::rank_crash;
    rule.when.rank = int(one.node);
    rule.when.at_ns = one.at_ns;
    scenario.faults.push_back(rule);
  }
  return Simulation(scenario, {}).run();
}

// ---- costs, measured -----------------------------------------------------------------------------------------------

constexpr std::int64_t kEvery = 4;  // of measurements: steps that no checkpoint touches on either side

// Rank 1 is killed at this time, in a run with a checkpoint after 4 steps.
RunRecord killed(TimeNs at) {
  Incident one;
  one.at_ns = at;
  one.node = 1;
  return simulated({one}, 2 * kEvery, kEvery);
}

class Measured {
 public:
  Measured() {
    const RunRecord calm = simulated({}, 2 * kEvery + 1, kEvery);
    for (const runtime::StepRecord& step : calm.steps) commits_.push_back(step.committed_ns);
    costs_.step_ns = commits_[2] - commits_[1];
    costs_.start_ns = commits_[0] - costs_.step_ns;
    TierCosts tier;
    tier.blocks_ns = commits_[kEvery] - commits_[kEvery - 1] - costs_.step_ns;
    tier.write_ns = usable_after(tier.blocks_ns);
    const RunRecord resumed = killed(commits_[kEvery] + costs_.step_ns / 2);
    tier.read_ns =
        resumed.steps[kEvery].committed_ns - resumed.training.attempts[1].began_ns - costs_.step_ns - costs_.start_ns;
    costs_.tiers = {tier};
  }

  // parts: failures at moments of the same part of a step or a checkpoint are noticed at the same moment; 0: each is
  // tried by itself.
  Costs costs(std::int64_t parts) {
    Costs costs = costs_;
    costs.reaction = [this, parts](const Costs::Moment& moment) { return reaction(moment, parts); };
    return costs;
  }

 private:
  // Bisected: the next start finds the checkpoint, or does not.
  TimeNs usable_after(TimeNs blocks) const {
    TimeNs low = 0, high = blocks;
    while (high - low > 1) {
      const TimeNs middle = low + (high - low) / 2;
      (killed(commits_[kEvery - 1] + middle).training.attempts[1].first_step == kEvery ? high : low) = middle;
    }
    return high;
  }

  Reaction reaction(const Costs::Moment& moment, std::int64_t parts) {
    EXPECT_FALSE(moment.starting) << "these failures strike no start";
    TimeNs tried = moment.phase_ns;
    if (parts > 0) {
      const TimeNs each = (moment.in_checkpoint ? costs_.tiers[0].blocks_ns : costs_.step_ns) / parts;
      tried = std::min(tried / each, parts - 1) * each + each / 2;
    }
    const auto [known, is_new] = ended_.try_emplace({moment.in_checkpoint, tried}, 0);
    if (is_new) {
      const TimeNs at = commits_[moment.in_checkpoint ? kEvery - 1 : 0] + tried;
      known->second = killed(at).training.attempts[0].ended_ns - at;
    }
    const TimeNs ended = std::max<TimeNs>(0, known->second + tried - moment.phase_ns);
    return {ended, ended};
  }

  std::vector<TimeNs> commits_;
  Costs costs_;
  std::map<std::pair<bool, TimeNs>, TimeNs> ended_;  // from the failure until the job has stopped
};

Measured& measured() {
  static Measured measured;
  return measured;
}

// ---- the two sides -------------------------------------------------------------------------------------------------

// Failures of rank 1, 400 s and `scale_s` times a Weibull draw apart: none strikes while the job comes back.
std::vector<Incident> arrivals(std::uint64_t seed, double scale_s, double shape) {
  sim::Random random(seed, sim::Stream(77));
  std::vector<Incident> all;
  for (double at = 0; at < 60'000;) {
    at += 400 + scale_s * std::pow(-std::log(1 - random.unit()), 1 / shape);
    all.push_back(incident(at, 1));
  }
  return all;
}

// When each step was committed for good, by a campaign.
std::vector<TimeNs> commits_of(const std::vector<Incident>& failures, std::int64_t every, const Costs& costs) {
  Study study = by_hand();
  study.hours = 20;
  study.cluster.nodes = 2;
  study.tiers[0].every_steps = every;
  study.recovery.detect_s.reset();
  study.recovery.agree_s.reset();
  study.recovery.restart_s = Distribution::of(60);
  study.incidents = failures;
  std::vector<TimeNs> commits;
  Watcher watcher;
  watcher.stretch = [&](const Stretch& stretch, std::int64_t steps) {
    commits.resize(std::size_t(stretch.first() + steps));
    for (std::int64_t j = 1; j <= steps; ++j) commits[std::size_t(stretch.first() + j - 1)] = stretch.commit(j);
  };
  EXPECT_EQ(what_is_wrong(run_campaign(study, costs, 1, watcher)), "");
  return commits;
}

// How many of the first steps are committed at the same time, to a ten-thousandth: a checkpoint of step 100 has a
// longer name in its manifest than one of step 4, and on this disk a byte takes half a millisecond.
std::size_t equal_commits(const RunRecord& run, const std::vector<TimeNs>& commits) {
  std::size_t equal = 0;
  for (; equal < run.steps.size() && equal < commits.size(); ++equal) {
    const TimeNs at = run.steps[equal].committed_ns;
    if (std::abs(at - commits[equal]) > at / 10'000) break;
  }
  return equal;
}

// Without a planted mistake all steps are committed at the same time.
TEST(CampaignOracle, AForgottenCostIsSeen) {
  const std::vector<Incident> failures = arrivals(1, 4000, 1);
  const RunRecord run = simulated(failures, 300, 10);
  const auto equal = [&](const std::function<void(Costs&)>& plant) {
    Costs costs = measured().costs(0);
    plant(costs);
    return equal_commits(run, commits_of(failures, 10, costs));
  };
  EXPECT_EQ(equal([](Costs&) {}), 300u);
  EXPECT_LT(equal([](Costs& c) { c.reaction = nullptr; }), 300u) << "a failure is noticed at once";
  EXPECT_EQ(equal([](Costs& c) { c.start_ns = 0; }), 0u);
  EXPECT_EQ(equal([](Costs& c) { c.step_ns += c.step_ns / 1000; }), 0u);
  EXPECT_LT(equal([](Costs& c) { c.tiers[0].blocks_ns = 0; }), 300u);
  EXPECT_LT(equal([](Costs& c) { c.tiers[0].read_ns = 0; }), 300u);
}

// The largest distance between the shares of two samples below a value (Kolmogorov and Smirnov).
double distance(std::vector<double> a, std::vector<double> b) {
  std::sort(a.begin(), a.end());
  std::sort(b.begin(), b.end());
  std::vector<double> all = a;
  all.insert(all.end(), b.begin(), b.end());
  const auto below = [](const std::vector<double>& of, double value) {
    return double(std::upper_bound(of.begin(), of.end(), value) - of.begin()) / double(of.size());
  };
  double most = 0;
  for (const double value : all) most = std::max(most, std::abs(below(a, value) - below(b, value)));
  return most;
}

// Failures tried at eight moments of a step, and others than those of the simulation: 60 runs against 60 campaigns.
// They come at almost regular times, so that what an outage costs shows. The distance that 1 % of pairs of equal
// distributions exceed is 1.63 * sqrt(2 / 60) = 0.298.
TEST(CampaignOracle, GoodputHasTheSameDistribution) {
  constexpr std::uint64_t kRuns = 60;
  constexpr std::size_t kSteps = 200;
  const Costs costs = measured().costs(8);
  const double useful = double(kSteps) * double(costs.step_ns);
  std::vector<double> simulation;
  for (std::uint64_t seed = 0; seed < kRuns; ++seed) {
    const RunRecord run = simulated(arrivals(1000 + seed, 800, 5), kSteps, 2);
    ASSERT_EQ(run.steps.size(), kSteps);
    simulation.push_back(useful / double(run.steps.back().committed_ns));
  }
  const auto campaigns = [&](const Costs& with) {
    std::vector<double> goodput;
    for (std::uint64_t seed = 0; seed < kRuns; ++seed) {
      const std::vector<TimeNs> commits = commits_of(arrivals(2000 + seed, 800, 5), 2, with);
      EXPECT_GE(commits.size(), kSteps);
      goodput.push_back(useful / double(commits[kSteps - 1]));
    }
    return goodput;
  };
  EXPECT_LT(distance(simulation, campaigns(costs)), 0.298);
  Costs forgotten = costs;
  forgotten.reaction = nullptr;  // a failure is noticed at once
  EXPECT_GT(distance(simulation, campaigns(forgotten)), 0.298);
  forgotten = costs;
  forgotten.tiers[0].read_ns = 0;
  EXPECT_GT(distance(simulation, campaigns(forgotten)), 0.298);
}

}  // namespace
}  // namespace seeksim::harness::campaign
