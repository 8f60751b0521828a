// A clean stop is refused where what is left would have sufficed, and only there. Hand-made records: each of them
// differs in one thing from one whose stop is refused.
#include "harness/verdict/suffice.h"

#include "harness/loading/load.h"
#include "harness/run/planned_run.h"
#include "tests/support/scenarios.h"

namespace seeksim::harness {
namespace {

using namespace testing;
using How = RankRecord::How;

// 4 ranks of 2 nodes, ZeRO 1, copies on the other node; `dead` are gone and the others have stopped.
struct Stopped {
  Scenario scenario;
  RunRecord run = good_run(4);
  Golden golden;

  explicit Stopped(const std::vector<int>& dead = {1}, const std::vector<std::string>& sets = {}) {
    LoadOptions load;
    load.sets = {"world.nodes=2", "world.ranks_per_node=2", "deepspeed.zero_optimization.stage=1",
                 "recovery.policy=rebuild_and_redo", R"(faults=[{"kind":"rank_crash","rank":1,"step":1}])"};
    load.sets.insert(load.sets.end(), sets.begin(), sets.end());
    scenario = load_scenario_text(small_text(), "s.json", load);
    run.faults.assign(scenario.faults.size(), {});
    for (faults::RuleStatus& rule : run.faults) rule.fired = 1;
    for (RankRecord& rank : run.ranks) rank.how = How::stopped;
    for (const int rank : dead) run.ranks[std::size_t(rank)].how = How::died;
    golden.loss.resize(std::size_t(scenario.train.definition.steps));
  }
  std::string text() const { return would_have_sufficed({scenario, run, &golden, std::nullopt, {}}); }
};

TEST(Suffice, OneIsGoneAndACopyIsKept) {
  EXPECT_EQ(Stopped().text(), "rank 1 is gone, and 1 copy is kept of each shard (recovery.peer_copies)");
}

TEST(Suffice, MoreAreGoneThanCopiesAreKept) {
  EXPECT_EQ(Stopped({1, 2}).text(), "");
  EXPECT_EQ(Stopped({1}, {"recovery.peer_copies=0"}).text(), "");
  EXPECT_NE(Stopped({1, 2}, {"recovery.peer_copies=2"}).text(), "");
}

TEST(Suffice, AfterACommittedStepCopiesAreKeptAgain) {
  Stopped later({1, 2});
  EXPECT_EQ(later.text(), "") << "both at once";
  later.run.detection.recoveries = {recovery_naming({2})};
  later.run.detection.recoveries[0].evicted = {2};
  later.run.detection.recoveries[0].resumed_ns = -1;
  EXPECT_EQ(later.text(), "") << "one after the other, without a step in between";
  later.run.detection.recoveries[0].resumed_ns = 5;
  EXPECT_EQ(later.text(), "rank 1 is gone, and 1 copy is kept of each shard (recovery.peer_copies)");
}

TEST(Suffice, WhoComesBackHasLostItsState) {
  Stopped both({1});
  both.run.ranks[2].how = RankRecord::How::spare;
  EXPECT_NE(both.text(), "") << "rank 2 is there, and nothing says that it ever left";
  both.run.detection.recoveries = {recovery_naming({1, 2})};
  both.run.detection.recoveries[0].evicted = {1, 2};
  both.run.detection.recoveries[0].resumed_ns = -1;
  EXPECT_EQ(both.text(), "") << "the shard's owner and its copy went together; one process came back, empty";
}

TEST(Suffice, ANodeMayGoWhole) {
  EXPECT_NE(Stopped({2, 3}).text().find("all of one node"), std::string::npos);
  EXPECT_EQ(Stopped({2, 3}, {"world.nodes=1", "world.ranks_per_node=4"}).text(), "");
}

TEST(Suffice, WithoutShardsEachHoldsAll) {
  const std::vector<std::string> stage0 = {"deepspeed.zero_optimization.stage=0"};
  EXPECT_NE(Stopped({0, 1, 2}, stage0).text().find("holds the whole state"), std::string::npos);
  EXPECT_EQ(Stopped({0, 1, 2, 3}, stage0).text(), "");
  EXPECT_EQ(Stopped({0, 1, 2}, {stage0[0], "recovery.ranks_min=2"}).text(), "");
}

TEST(Suffice, WhatCompressionDidNotSendGoesWithItsRank) {
  const std::vector<std::string> fp16 = {"deepspeed.zero_optimization.stage=0",
                                         R"(compression={"method":"fp16","groups":4})"};
  EXPECT_EQ(Stopped({1}, fp16).text(), "");
  EXPECT_NE(Stopped({1}, {fp16[0], R"(compression={"method":"fp16","groups":4,"error_feedback":false})"}).text(), "");
}

TEST(Suffice, NobodyIsGone) {
  EXPECT_NE(Stopped(std::vector<int>{}).text().find("no fault removed state"), std::string::npos);
}

TEST(Suffice, WhatExcusesAStop) {
  EXPECT_EQ(Stopped({1}, {"recovery.policy=stop"}).text(), "") << "it is the policy";
  EXPECT_EQ(Stopped({1}, {R"(faults=[{"kind":"oom","rank":1,"step":1}])"}).text(), "") << "memory is short";
  Stopped short_golden;
  short_golden.golden.loss.resize(1);
  EXPECT_EQ(short_golden.text(), "") << "the golden stops too";
  Stopped tried;
  tried.run.detection.recoveries.resize(std::size_t(tried.scenario.train.recovery.attempts_max));
  EXPECT_EQ(tried.text(), "") << "it has tried often enough";
}

// As explore and fault plans judge it.
TEST(Suffice, SuchAStopIsRedWhereAnyOtherIsFine) {
  Stopped wrong, right({0, 2});
  for (Stopped* one : {&wrong, &right}) {
    one->run.steps.clear();
    one->scenario.checks.clear();
    for (RankRecord& rank : one->run.ranks) rank.why = "a shard is lost";
  }
  const PlannedEnd red = judge_planned(wrong.scenario, wrong.run, &wrong.golden, Cases::explored);
  EXPECT_EQ(red.how, PlannedEnd::How::red);
  EXPECT_EQ(red.red, std::vector<std::string>{"finished"});
  EXPECT_NE(red.why.find("(it should have continued: rank 1 is gone, and 1 copy"), std::string::npos) << red.why;
  const PlannedEnd fine = judge_planned(right.scenario, right.run, &right.golden, Cases::explored);
  EXPECT_EQ(fine.how, PlannedEnd::How::stopped) << fine.why;
}

}  // namespace
}  // namespace seeksim::harness
