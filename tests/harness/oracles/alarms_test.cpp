// Alarms: each limit passed and not passed, on steps made by hand and in whole runs.
#include "harness/oracles/alarms.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include <nlohmann/json.hpp>

#include "harness/loading/load.h"
#include "harness/simulate/simulate.h"
#include "runtime/seams/time.h"
#include "tests/support/scenarios.h"

namespace seeksim::harness {
namespace {

using namespace testing;
using runtime::kSecond;

// Four steps, a second each: losses 4, 3, 2, 1.
RunRecord four_steps() {
  RunRecord run = good_run();
  for (std::size_t i = 0; i < run.steps.size(); ++i) {
    run.steps[i].loss = float(run.steps.size() - i);
    run.steps[i].grad_norm = 1;
    run.steps[i].committed_ns = std::int64_t(i + 1) * kSecond;
  }
  return run;
}

using Member = std::optional<double> Alarms::*;

Alarms limits(std::initializer_list<std::pair<Member, double>> given, std::optional<std::int64_t> nonfinite = {}) {
  Alarms alarms;
  for (const auto& [member, value] : given) alarms.*member = value;
  alarms.nonfinite_max = nonfinite;
  return alarms;
}

std::string raised(const Alarms& limits, const RunRecord& run) {
  Scenario scenario = small_scenario();
  scenario.watched.alarms = limits;
  std::string texts;
  for (const Alarm& alarm : raised_alarms(scenario, run)) texts += text_of(alarm) + '\n';
  return texts;
}

// Two ranks, of which the second has another layer too: of 10 choices in layer 0 expert 1 has 6, of which 2 found no
// room; step 1 is even. What is told again by another world stands in place of it.
TEST(Alarms, TheLoadOfExpertsIsThatOfAllRanks) {
  RunRecord run = four_steps();
  Choices& choices = run.training.choices;
  const auto tell = [&](std::int64_t step, std::uint32_t epoch, std::vector<std::int32_t> layers,
                        std::vector<std::int64_t> counts) {
    runtime::ChoicesRecord told;
    told.step = step, told.epoch = epoch, told.layers = std::move(layers), told.counts = std::move(counts);
    choices.add(told, 0);
  };
  tell(0, 0, {0}, {9, 0, 0, 0});
  tell(0, 1, {0}, {3, 2, 0, 0});
  tell(0, 1, {0, 3}, {1, 4, 0, 2, 5, 5, 0, 0});
  tell(1, 1, {0}, {5, 5, 0, 0});
  EXPECT_EQ(raised(limits({{&Alarms::expert_share_max, 0.6}}), run), "");
  EXPECT_EQ(raised(limits({{&Alarms::expert_share_max, 0.59}}), run),
            "alarm expert_share_max: 0.6 in step 0, above 0.59\n");
  EXPECT_EQ(raised(limits({{&Alarms::dropped_share_max, 0.1}}), run), "");
  EXPECT_EQ(raised(limits({{&Alarms::dropped_share_max, 0.09}}), run),
            "alarm dropped_share_max: 0.1 in step 0, above 0.09\n");
  const std::vector<ExpertLoad> loads = choices.loads();
  ASSERT_EQ(loads.size(), 2u);
  EXPECT_EQ(loads[0].layer, 0);
  EXPECT_EQ(loads[0].expert, 1);
  choices.keep(1);
  EXPECT_EQ(choices.loads().size(), 1u);
}

TEST(Alarms, EachLimitIsPassedBeyondItAndNotAtIt) {
  RunRecord run = four_steps();
  EXPECT_EQ(raised(limits({{&Alarms::loss_max, 4}}), run), "");
  EXPECT_EQ(raised(limits({{&Alarms::loss_max, 2.5}}), run),
            "alarm loss_max: 4 in step 0, above 2.5; 2 steps in all\n");
  EXPECT_EQ(raised(limits({{&Alarms::loss_min, 1}}), run), "");
  EXPECT_EQ(raised(limits({{&Alarms::loss_min, 1.5}}), run), "alarm loss_min: 1 in step 3, below 1.5\n");
  EXPECT_EQ(raised(limits({{&Alarms::grad_norm_max, 1}}), run), "");
  EXPECT_EQ(raised(limits({{&Alarms::grad_norm_max, 0.5}}), run),
            "alarm grad_norm_max: 1 in step 0, above 0.5; 4 steps in all\n");
  run.steps[2].loss_scale = 0.5;
  EXPECT_EQ(raised(limits({{&Alarms::loss_scale_min, 0.5}}), run), "");
  EXPECT_EQ(raised(limits({{&Alarms::loss_scale_min, 1}}), run), "alarm loss_scale_min: 0.5 in step 2, below 1\n");
  run.steps[3].committed_ns += 2 * kSecond;
  EXPECT_EQ(raised(limits({{&Alarms::step_s_max, 3}}), run), "");
  EXPECT_EQ(raised(limits({{&Alarms::step_s_max, 1}}), run), "alarm step_s_max: 3 in step 3, above 1\n");
  run.memory.peak = small_scenario().world.device.capacity_bytes / 2;
  EXPECT_EQ(raised(limits({{&Alarms::memory_share_max, 0.5}}), run), "");
  EXPECT_EQ(raised(limits({{&Alarms::memory_share_max, 0.25}}), run), "alarm memory_share_max: 0.5, above 0.25\n");
}

TEST(Alarms, WhatIsNoNumberPassesEitherLimit) {
  RunRecord run = four_steps();
  run.steps[1].loss = std::numeric_limits<float>::quiet_NaN();
  run.steps[2].grad_norm = std::numeric_limits<float>::infinity();
  EXPECT_EQ(raised(limits({{&Alarms::loss_max, 100}}), run), "alarm loss_max: nan in step 1, above 100\n");
  EXPECT_EQ(raised(limits({{&Alarms::loss_min, 0}}), run), "alarm loss_min: nan in step 1, below 0\n");
  EXPECT_EQ(raised(limits({}, 2), run), "");
  EXPECT_EQ(raised(limits({}, 1), run), "alarm nonfinite_max: 2 in step 2, above 1\n");
  EXPECT_EQ(alarms_json({{"loss_max", 100, {{1, 2 * kSecond, double(run.steps[1].loss)}}}}).dump(),
            R"([{"alarm":"loss_max","limit":100.0,"step":1,"at_s":2.0,"value":"NaN","times":1}])");
}

TEST(Alarms, ARunOfShapesHasNoLossesAndNorms) {
  RunRecord run = four_steps();
  run.has_values = false;
  EXPECT_EQ(raised(limits({{&Alarms::loss_max, 0}, {&Alarms::grad_norm_max, 0}, {&Alarms::loss_scale_min, 9}}, 0), run),
            "");
  EXPECT_EQ(raised(limits({{&Alarms::step_s_max, 0.5}}), run),
            "alarm step_s_max: 1 in step 1, above 0.5; 3 steps in all\n");
}

TEST(Alarms, AStepHasThoseThatItPassed) {
  Scenario scenario = small_scenario();
  scenario.watched.alarms = limits({{&Alarms::loss_max, 2.5}, {&Alarms::grad_norm_max, 0.5}});
  const std::vector<Alarm> all = raised_alarms(scenario, four_steps());
  EXPECT_EQ(alarms_in_step(all, 1), (std::vector<std::string>{"loss_max", "grad_norm_max"}));
  EXPECT_EQ(alarms_in_step(all, 3), std::vector<std::string>{"grad_norm_max"});
}

TEST(Alarms, AreWrittenBackAndAskedForByName) {
  Scenario scenario = small_scenario();
  scenario.watched.alarms = limits({{&Alarms::loss_max, 2.5}}, 0);
  const Json written = to_json(scenario);
  EXPECT_EQ(written.at("alarms").dump(), R"({"loss_max":2.5,"nonfinite_max":0})");
  EXPECT_FALSE(to_json(small_scenario()).contains("alarms"));
  EXPECT_EQ(want_alarms("none", 0), "");
  EXPECT_EQ(want_alarms("loss_max,step_s_max", 0), "");
  EXPECT_NE(want_alarms("loss_mx", 0).find("there is no alarm \"loss_mx\""), std::string::npos);
  EXPECT_NE(want_alarms("", 0), "");
}

// A gradient that is not finite, in a run: its step is skipped, and counted.
TEST(Alarms, AWholeRunRaisesThem) {
  Scenario scenario = small_scenario();
  scenario.watched.alarms = limits({{&Alarms::loss_max, 0.5}, {&Alarms::step_s_max, 3600}});
  const RunRecord run = Simulation(scenario, {}).run();
  const std::vector<Alarm> all = raised_alarms(scenario, run);
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(std::string(all[0].name), "loss_max");
  EXPECT_EQ(all[0].passings.size(), run.steps.size());
  EXPECT_FLOAT_EQ(float(all[0].passings[0].value), run.steps[0].loss);
}

}  // namespace
}  // namespace seeksim::harness
