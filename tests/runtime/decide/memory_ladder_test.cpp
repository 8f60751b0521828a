// Out of memory: the ladder alone, and whole runs in which allocations fail, one a run, or in which the device is
// small.
#include "runtime/decide/memory_ladder.h"

#include <gtest/gtest.h>

#include <array>
#include <set>

#include "faults/plan.h"
#include "tests/support/simulated_training.h"

namespace seeksim::test {
namespace {

using faults::FaultKind;
using faults::FaultPlan;
using faults::Rule;

// ---- the ladder alone
// -------------------------------------------------------------------------------------------------

constexpr Shortage kOfState{true, false}, kOfActivations{true, true};

// All rungs from `layout` on, as the texts of what they change.
std::vector<std::string> climb(Layout layout, const Definition& definition, const Shortage& shortage,
                               LadderPlace place) {
  std::vector<std::string> all;
  while (const std::optional<Layout> next = next_rung(layout, definition, shortage, place)) {
    all.push_back(change(layout, *next));
    layout = *next;
    place.tried_again = true;
    if (all.size() > 40) break;
  }
  return all;
}

TEST(MemoryLadder, TriesTheSameThenFewerActivationsThenShards) {
  Layout layout;
  layout.micro_batch = 4;
  EXPECT_EQ(climb(layout, Definition{}, kOfActivations, {false, true, 4}),
            (std::vector<std::string>{"the same once more", "micro-batch 4 -> 2", "micro-batch 2 -> 1",
                                      "no checkpointing -> checkpointing every layer", "stage 0 -> 1", "stage 1 -> 2",
                                      "stage 2 -> 3", "no offload -> optimizer on cpu",
                                      "optimizer on cpu -> optimizer on cpu and parameters on cpu"}));
}

TEST(MemoryLadder, WhatHasNoActivationsIsNotHelpedByFewer) {
  EXPECT_EQ(climb(Layout{}, Definition{}, kOfState, {true, true, 2}),
            (std::vector<std::string>{"stage 0 -> 1", "stage 1 -> 2", "stage 2 -> 3", "no offload -> optimizer on cpu",
                                      "optimizer on cpu -> optimizer on cpu and parameters on cpu"}));
}

TEST(MemoryLadder, StateStaysWhereItIsOnceSomethingIsCommitted) {
  EXPECT_EQ(climb(Layout{}, Definition{}, kOfActivations, {true, false, 2}),
            (std::vector<std::string>{"micro-batch 2 -> 1", "no checkpointing -> checkpointing every layer"}));
}

// Pieces of an interleaved pipeline go in groups of as many micro-batches as there are stages.
TEST(MemoryLadder, KeepsToMicroBatchesThatTheScheduleCanRun) {
  Layout layout;
  layout.micro_batch = 3;
  layout.parallel.pipeline = 2;
  layout.parallel.virtual_stages = 2;
  layout.parallel.schedule = PipelineSchedule::interleaved;
  Definition definition;
  definition.global_batch = 12;  // two replicas: 2 micro-batches of 3 samples each, 6 of 1
  EXPECT_EQ(climb(layout, definition, kOfActivations, {true, false, 4}),
            (std::vector<std::string>{"micro-batch 3 -> 1", "no checkpointing -> checkpointing every layer"}));
  definition.global_batch = 18;  // 3 micro-batches now; 9 of one sample would leave one alone
  layout.micro_batch = 2;
  EXPECT_EQ(climb(layout, definition, kOfActivations, {true, false, 4}),
            (std::vector<std::string>{"no checkpointing -> checkpointing every layer"}));
  layout.parallel.schedule = PipelineSchedule::one_f_one_b;
  layout.parallel.virtual_stages = 1;
  EXPECT_EQ(climb(layout, definition, kOfActivations, {true, false, 4}),
            (std::vector<std::string>{"micro-batch 2 -> 1", "no checkpointing -> checkpointing every layer"}));
}

TEST(MemoryLadder, ReplicasOfACutModelAreWhatShardsGoTo) {
  Layout layout;
  layout.parallel.pipeline = 4;
  EXPECT_EQ(climb(layout, Definition{}, kOfState, {true, true, 4}), std::vector<std::string>{});  // one replica
  EXPECT_EQ(climb(layout, Definition{}, kOfState, {true, true, 8}).front(), "stage 0 -> 1");
}

TEST(MemoryLadder, PinnedMemoryBecomesPageable) {
  Layout layout;
  layout.zero = zero_plan(3);
  layout.offload.optimizer.home = Home::host;
  layout.offload.optimizer.pin_memory = true;
  EXPECT_EQ(climb(layout, Definition{}, kOfState, {true, true, 2}),
            (std::vector<std::string>{"pinned optimizer on cpu -> pinned optimizer on cpu and parameters on cpu",
                                      "pinned optimizer on cpu and parameters on cpu -> optimizer on cpu and "
                                      "parameters on cpu"}));
}

TEST(MemoryLadder, OneRankHasNobodyToShareWith) {
  EXPECT_EQ(climb(Layout{}, Definition{}, kOfState, {true, true, 1}), std::vector<std::string>{});
}

TEST(MemoryLadder, AMicroBatchIsNeverLargerThanTheBatch) {
  Layout layout;
  layout.micro_batch = 64;
  Definition definition;
  definition.global_batch = 6;
  const std::optional<Layout> next = next_rung(layout, definition, kOfActivations, {true, false, 2});
  ASSERT_TRUE(next);
  EXPECT_EQ(next->micro_batch, 3);
}

TEST(MemoryLadder, WhereTheSplitDecidesBitsItIsKept) {
  Definition definition;
  definition.quirks.add(Quirk::mean_of_micro_batch_means);
  EXPECT_EQ(climb(Layout{}, definition, kOfActivations, {true, true, 4}),
            (std::vector<std::string>{"no checkpointing -> checkpointing every layer"}));
}

TEST(MemoryLadder, AnyRankThatIsShortCounts) {
  Agreement agreement;
  agreement.members = {0, 1, 2};
  agreement.ballots.resize(3);
  agreement.ballots[0].error = ErrorKind::revoked;
  agreement.ballots[0].words[kActivationsWord] = 1;  // its own, and it was not short
  EXPECT_EQ(shortage(agreement), Shortage{});
  agreement.ballots[2].error = ErrorKind::out_of_memory;
  EXPECT_EQ(shortage(agreement), kOfState);
  agreement.ballots[1] = agreement.ballots[2];
  agreement.ballots[1].words[kActivationsWord] = 1;
  EXPECT_EQ(shortage(agreement), kOfActivations);
}

TEST(MemoryLadder, ALayoutIsToldInWords) {
  Layout layout;
  EXPECT_EQ(text(layout), "micro-batch 2, stage 0, no checkpointing, no offload");
  layout.checkpointing.every = 1;
  layout.offload.optimizer.home = Home::host;
  layout.offload.parameters.home = Home::nvme;
  EXPECT_EQ(text(layout), "micro-batch 2, stage 0, checkpointing every layer, optimizer on cpu and parameters on nvme");
  EXPECT_EQ(change(Layout{}, layout),
            "no checkpointing -> checkpointing every layer, no offload -> optimizer on cpu and parameters on nvme");
}

// ---- injected
// ---------------------------------------------------------------------------------------------------------

TrainPlan small_plan(int stage, bool ladder) {
  TrainPlan plan = tiny_plan();
  plan.definition.model.vocab = 17;
  plan.definition.global_batch = 4;
  plan.definition.steps = 2;
  plan.layout.zero = zero_plan(stage);
  plan.layout.zero.reduce_bucket_elements = 700;
  plan.layout.zero.persistence_threshold_elements = 20;
  plan.recovery.memory_ladder = ladder;
  plan.recovery.watchdog_ns = 10 * kSecond;
  plan.recovery.agree_ns = kSecond;
  return plan;
}

struct Shot {
  Simulated run;
  std::uint64_t fired = 0;
};

Shot run_with(const Rule& rule, const TrainPlan& plan, const sim::WorldPlan& world) {
  FaultPlan faults({rule}, 1, std::vector<int>(std::size_t(world.ranks()), 0));
  Shot shot;
  shot.run = run_simulated(plan, world, [&](sim::World& w) {
    w.decorate([&](int rank, Seams inner) { return faults.decorate(rank, inner); });
  });
  shot.fired = faults.status()[0].fired;
  return shot;
}

Rule nth_allocation(int rank, std::uint64_t n) {
  Rule rule;
  rule.kind = FaultKind::oom;
  rule.when.rank = rank;
  rule.when.call = n;
  return rule;
}

void expect_golden(const Simulated& run, const StateDigest& golden, const std::string& where) {
  ASSERT_EQ(run.world.end, sim::WorldEnd::finished) << where << "\n" << run.world.wait_for_graph;
  for (std::size_t rank = 0; rank < run.outcomes.size(); ++rank) {
    ASSERT_TRUE(run.outcomes[rank]) << where << ": " << run.world.ranks[rank].what;
    ASSERT_EQ(run.outcomes[rank]->ending, Ending::finished) << where << ": " << run.outcomes[rank]->why;
    ASSERT_EQ(run.outcomes[rank]->state, golden) << where << ", rank " << rank;
  }
}

struct Case {
  const char* name;
  int stage;
  bool ladder;
  bool bf16;
  bool offload;
  RecoveryPolicy policy;
};

class EveryAllocation : public testing::TestWithParam<Case> {};

// Also: what fails after the commit point would end in two ranks that committed different steps, and a stop.
TEST_P(EveryAllocation, OfEitherRankMayFailOnceAndTheBitsAreTheGoldens) {
  const Case& c = GetParam();
  TrainPlan plan = small_plan(c.stage, c.ladder);
  plan.recovery.policy = c.policy;
  if (c.offload) plan.layout.offload.optimizer.home = Home::host;
  if (c.bf16) plan.definition.precision = {ElementType::bf16, ElementType::bf16, false};
  TrainPlan alone = plan;
  alone.layout.zero = zero_plan(0);
  alone.layout.offload = {};
  const StateDigest golden = run_alone(alone).outcome.state;
  std::array<std::uint64_t, 2> failed{};
  for (int rank = 0; rank < 2; ++rank) {
    for (std::uint64_t n = 1;; ++n) {
      const Shot shot = run_with(nth_allocation(rank, n), plan, world_of(2, n % 2 == 0));
      const std::string where = "rank " + std::to_string(rank) + ", allocation " + std::to_string(n);
      expect_golden(shot.run, golden, where);
      if (testing::Test::HasFatalFailure()) return;
      if (shot.fired == 0) break;
      ASSERT_EQ(shot.fired, 1u) << where;
      ASSERT_GE(shot.run.observer.recovering_records.size(), 2u) << where;
      for (const RecoveryRecord& record : shot.run.observer.recovering_records) {
        ASSERT_TRUE(record.evicted.empty()) << where;
        ASSERT_EQ(record.diagnosis.culprits, std::vector<int>{rank}) << where;
        ASSERT_EQ(record.layout, c.ladder ? "the same once more" : "") << where;
      }
      ++failed[std::size_t(rank)];
    }
  }
  EXPECT_GT(failed[0], 30u);
  EXPECT_NEAR(double(failed[0]), double(failed[1]), 3.0);
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (int stage = 0; stage < 4; ++stage) {
    all.push_back({"with_the_ladder", stage, true, false, false, RecoveryPolicy::rebuild_and_redo});
    all.push_back({"in_bf16_alone", stage, false, true, false, RecoveryPolicy::retry_step});
    if (stage > 0) all.push_back({"offloaded", stage, true, false, true, RecoveryPolicy::rebuild_and_redo});
  }
  return all;
}

std::string case_name(const testing::TestParamInfo<Case>& info) {
  return "stage_" + std::to_string(info.param.stage) + "_" + info.param.name;
}

INSTANTIATE_TEST_SUITE_P(All, EveryAllocation, testing::ValuesIn(cases()), case_name);

TEST(OutOfMemory, InsideTheCommunicatorIsSurvived) {
  const TrainPlan plan = small_plan(3, true);
  TrainPlan alone = plan;
  alone.layout.zero = zero_plan(0);
  const StateDigest golden = run_alone(alone).outcome.state;
  for (int rank = 0; rank < 2; ++rank) {
    Rule rule = nth_allocation(rank, 1);
    rule.when.op = OpKind::comm_create;
    const Shot shot = run_with(rule, plan, world_of(2));
    EXPECT_EQ(shot.fired, 1u);
    expect_golden(shot.run, golden, "rank " + std::to_string(rank));
  }
}

// A rule that never stops: each rung is tried once, in order, on all ranks alike, and then all stop.
TEST(OutOfMemory, ForEverEndsWhereTheLadderEnds) {
  Rule rule = nth_allocation(1, 1);
  rule.count = 0;
  rule.tag = "activations";
  const Shot shot = run_with(rule, small_plan(0, true), world_of(2));
  ASSERT_EQ(shot.run.world.end, sim::WorldEnd::finished);
  std::map<std::uint32_t, std::vector<std::string>> by_epoch;
  for (const RecoveryRecord& record : shot.run.observer.recovering_records)
    by_epoch[record.epoch].push_back(record.layout);
  std::vector<std::string> rungs;
  for (const auto& [epoch, told] : by_epoch) {
    ASSERT_EQ(told.size(), 2u);
    EXPECT_EQ(told[0], told[1]);
    rungs.push_back(told[0]);
  }
  EXPECT_EQ(rungs, (std::vector<std::string>{"the same once more", "micro-batch 2 -> 1",
                                             "no checkpointing -> checkpointing every layer", "stage 0 -> 1",
                                             "stage 1 -> 2", "stage 2 -> 3", "no offload -> optimizer on cpu",
                                             "optimizer on cpu -> optimizer on cpu and parameters on cpu", ""}));
  for (const auto& outcome : shot.run.outcomes) {
    ASSERT_TRUE(outcome);
    EXPECT_EQ(outcome->ending, Ending::stopped);
    EXPECT_EQ(outcome->steps_committed, 0);
    EXPECT_NE(outcome->why.find("no layout is left that needs less memory (micro-batch 1, stage 3, checkpointing every "
                                "layer, optimizer on cpu and parameters on cpu; tried: the same once more; micro-batch "
                                "2 -> 1; no checkpointing -> checkpointing every layer; stage 0 -> 1;"),
              std::string::npos)
        << outcome->why;
  }
}

// ---- natural
// ----------------------------------------------------------------------------------------------------------

TEST(OutOfMemory, ASmallDeviceMakesTheLadderFindWhatFits) {
  TrainPlan plan = small_plan(0, true);
  plan.layout.micro_batch = 4;
  plan.definition.model.layers = 6;
  plan.layout.zero.max_reuse_distance = 0;
  plan.layout.zero.prefetch_elements = 0;
  plan.recovery.peer_copies = 0;
  const StateDigest golden = run_alone(plan).outcome.state;
  std::set<std::string> last_rungs;
  int stopped = 0;
  const std::size_t enough = run_simulated(plan, world_of(4)).world.memory_peak;
  for (std::size_t capacity = enough; capacity > enough / 20; capacity = capacity * 9 / 10) {
    sim::WorldPlan world = world_of(4);
    world.device.capacity_bytes = capacity;
    const Simulated run = run_simulated(plan, world);
    EXPECT_LE(run.world.memory_peak, capacity);
    ASSERT_TRUE(run.outcomes[0]) << run.world.wait_for_graph;
    if (run.outcomes[0]->ending == Ending::finished) {
      expect_golden(run, golden, std::to_string(capacity) + " bytes");
      const auto& records = run.observer.recovering_records;
      last_rungs.insert(records.empty() ? "" : records.back().layout);
      continue;
    }
    ++stopped;
    int maps = 0;
    for (const auto& outcome : run.outcomes) {
      ASSERT_TRUE(outcome);
      EXPECT_EQ(outcome->ending, Ending::stopped);
      EXPECT_NE(outcome->why.find("no layout is left"), std::string::npos) << outcome->why;
      maps += outcome->why.find("largest: '") != std::string::npos;
    }
    EXPECT_GT(maps, 0) << "a rank that was short says what was in use";
  }
  EXPECT_TRUE(last_rungs.count("")) << "the first capacity is enough";
  EXPECT_TRUE(last_rungs.count("stage 2 -> 3")) << testing::PrintToString(last_rungs);
  EXPECT_GE(last_rungs.size(), 4u) << "smaller and smaller devices climb further and further";
  EXPECT_GT(stopped, 0) << "and at last nothing fits";
}

TEST(OutOfMemory, SaysWhatWasInUse) {
  TrainPlan plan = small_plan(0, false);
  plan.recovery.policy = RecoveryPolicy::stop;
  sim::WorldPlan world = world_of(1);
  world.device.capacity_bytes = run_simulated(plan, world).world.memory_peak - 1;
  const Simulated run = run_simulated(plan, world);
  ASSERT_TRUE(run.outcomes[0]);
  EXPECT_EQ(run.outcomes[0]->ending, Ending::stopped);
  const std::string& why = run.outcomes[0]->why;
  for (const char* part : {"the recovery policy is to stop", "asked for ", " of device memory, free are ",
                           "\nin use: ", " optimizer ", "\nlargest: '"}) {
    EXPECT_NE(why.find(part), std::string::npos) << why;
  }
}

}  // namespace
}  // namespace seeksim::test
