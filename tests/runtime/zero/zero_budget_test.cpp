// What ZeRO promises in memory and traffic, against the device's ledger and the network's counters; and that overlap is
// seen in virtual time.
#include <gtest/gtest.h>

#include "runtime/layout/parameters.h"
#include "tests/support/simulated_training.h"

namespace seeksim::test {
namespace {

constexpr double kBlockBytes = 4.0 * double(kernels::kBlock);

// Every parameter has one use, so that the formulas need no footnote.
TrainPlan budget_plan(int stage, int ranks) {
  TrainPlan plan;
  ModelPlan& m = plan.definition.model;
  m.layers = 2, m.context = 32, m.tied = false;
  plan.definition.data.synthetic = true;
  plan.definition.global_batch = 2 * ranks;
  plan.definition.steps = 2;
  plan.layout.micro_batch = 2;  // one micro-step; cuts aligned
  plan.layout.zero = zero_plan(stage);
  plan.layout.zero.persistence_threshold_elements = 0;
  plan.layout.zero.max_reuse_distance = 0;
  return plan;
}

double parameters_of(const TrainPlan& plan) {
  return double(Parameters(plan.definition.model, plan.definition.optimizer.decay_all).size());
}

double peak(const Simulated& run, MemoryTag tag) { return double(run.world.memory_peak_by_tag[std::size_t(tag)]); }
double sent(const Simulated& run, OpKind kind) {
  return double(run.world.comm[std::size_t(kind)].bytes_sent_per_rank_max);
}

TEST(ZeroBudget, MemoryByTagIsThatOfThePaperToOneBlock) {
  for (const int ranks : {1, 2, 3, 4, 7, 8}) {
    for (const int stage : {0, 1, 2, 3}) {
      const TrainPlan plan = budget_plan(stage, ranks);
      const Simulated run = run_simulated(plan, world_of(ranks));
      ASSERT_EQ(int(run.finished().size()), ranks);
      const double P = parameters_of(plan), N = ranks;
      const std::string at = "stage " + std::to_string(stage) + ", " + std::to_string(ranks) + " ranks";
      EXPECT_NEAR(peak(run, MemoryTag::parameters), 4 * P / (stage >= 3 ? N : 1), kBlockBytes) << at;
      EXPECT_NEAR(peak(run, MemoryTag::gradients), 4 * P / (stage >= 2 ? N : 1), kBlockBytes) << at;
      EXPECT_NEAR(peak(run, MemoryTag::optimizer), 8 * P / (stage >= 1 ? N : 1), 2 * kBlockBytes) << at;
      const bool copies = stage >= 1 && ranks > 1;
      EXPECT_NEAR(peak(run, MemoryTag::peer_copies), copies ? 16 * P / N : 0, 4 * kBlockBytes) << at;
      EXPECT_EQ(peak(run, MemoryTag::gathered) > 0, stage == 3) << at;
    }
  }
}

TEST(ZeroBudget, LionHoldsAndCopiesOneMoment) {
  for (const int stage : {0, 1, 2, 3}) {
    TrainPlan plan = budget_plan(stage, 4);
    plan.definition.optimizer.type = "Lion";
    const Simulated run = run_simulated(plan, world_of(4));
    ASSERT_EQ(int(run.finished().size()), 4);
    const double P = parameters_of(plan), owners = stage >= 1 ? 4 : 1;
    EXPECT_NEAR(peak(run, MemoryTag::optimizer), 4 * P / owners, kBlockBytes) << stage;
    EXPECT_NEAR(peak(run, MemoryTag::peer_copies), stage >= 1 ? 12 * P / 4 : 0, 3 * kBlockBytes) << stage;
  }
}

TEST(ZeroBudget, SgdHoldsWhatItHasAndAMeanOfWeightsIsOneMore) {
  for (const int stage : {0, 1, 2, 3}) {
    for (const bool momentum : {false, true}) {
      for (const bool mean : {false, true}) {
        TrainPlan plan = budget_plan(stage, 4);
        plan.definition.optimizer.type = "SGD";
        plan.definition.optimizer.momentum = momentum ? 0.9 : 0;
        plan.definition.optimizer.ema_decay = mean ? 0.99 : 0;
        const Simulated run = run_simulated(plan, world_of(4));
        ASSERT_EQ(int(run.finished().size()), 4);
        const double P = parameters_of(plan), owners = stage >= 1 ? 4 : 1,
                     kept = 4 * ((momentum ? 1 : 0) + (mean ? 1 : 0));
        EXPECT_NEAR(peak(run, MemoryTag::optimizer), kept * P / owners, 2 * kBlockBytes) << stage;
        EXPECT_NEAR(peak(run, MemoryTag::peer_copies), stage >= 1 ? (8 + kept) * P / 4 : 0, 4 * kBlockBytes) << stage;
      }
    }
  }
}

TEST(ZeroBudget, TrafficIsThatOfThePaperToOneBlock) {
  for (const int ranks : {2, 3, 4, 7, 8}) {
    for (const int stage : {0, 1, 2, 3}) {
      const TrainPlan plan = budget_plan(stage, ranks);
      const Simulated run = run_simulated(plan, world_of(ranks));
      const double P = parameters_of(plan), N = ranks, steps = double(plan.definition.steps);
      const double once = steps * 4 * P * (N - 1) / N, block = steps * kBlockBytes * N;
      const std::string at = "stage " + std::to_string(stage) + ", " + std::to_string(ranks) + " ranks";
      EXPECT_NEAR(sent(run, OpKind::all_reduce), stage == 0 ? 2 * once : 0, block) << at;
      EXPECT_NEAR(sent(run, OpKind::reduce_scatter), stage >= 1 ? once : 0, block) << at;
      EXPECT_NEAR(sent(run, OpKind::publish), stage == 1 || stage == 2 ? once : 0, block) << at;
      EXPECT_NEAR(sent(run, OpKind::param_gather), stage == 3 ? 2 * once : 0, 2 * block) << at;
    }
  }
}

TEST(ZeroBudget, EveryMicroStepReducesAndGathersAgain) {
  for (const int stage : {2, 3}) {
    TrainPlan plan = budget_plan(stage, 4);
    const Simulated one = run_simulated(plan, world_of(4));
    plan.definition.global_batch *= 3;
    const Simulated three = run_simulated(plan, world_of(4));
    EXPECT_EQ(sent(three, OpKind::reduce_scatter), 3 * sent(one, OpKind::reduce_scatter));
    EXPECT_EQ(sent(three, OpKind::param_gather), 3 * sent(one, OpKind::param_gather));
    EXPECT_EQ(sent(three, OpKind::publish), sent(one, OpKind::publish));
  }
}

TEST(ZeroBudget, TheHeadsUseOfATiedParameterTravelsToo) {
  TrainPlan plan = budget_plan(2, 4);
  plan.definition.model.tied = true;
  const Simulated run = run_simulated(plan, world_of(4));
  const double P = parameters_of(plan), wte = 256 * 64, steps = 2;
  // An owner of wte receives what others send; a rank that owns none of it sends all of the head's share.
  EXPECT_NEAR(sent(run, OpKind::reduce_scatter), steps * 4 * (P * 3 / 4 + wte), steps * kBlockBytes * 4);
}

TEST(ZeroBudget, MaxReuseDistanceKeepsWhatBackwardUsesAgain) {
  TrainPlan plan = budget_plan(3, 4);
  const double given_up = sent(run_simulated(plan, world_of(4)), OpKind::param_gather);
  plan.layout.zero.max_reuse_distance = 1'000'000'000;
  const double kept = sent(run_simulated(plan, world_of(4)), OpKind::param_gather);
  EXPECT_NEAR(kept, given_up / 2, kBlockBytes * 8);
  plan.layout.zero.max_live_parameters = 1;  // nothing may stay
  EXPECT_EQ(sent(run_simulated(plan, world_of(4)), OpKind::param_gather), given_up);
  plan.layout.zero.persistence_threshold_elements = 1'000'000'000;  // nothing has to be gathered
  EXPECT_EQ(sent(run_simulated(plan, world_of(4)), OpKind::param_gather), 0);
}

TEST(ZeroBudget, FewGatheredParametersAreAliveAtATimeWithoutPrefetch) {
  TrainPlan plan = budget_plan(3, 4);
  plan.layout.zero.prefetch_elements = 0;
  const Simulated lazy = run_simulated(plan, world_of(4));
  plan.layout.zero.prefetch_elements = 1'000'000'000;
  const Simulated eager = run_simulated(plan, world_of(4));
  EXPECT_LT(peak(lazy, MemoryTag::gathered), 4 * parameters_of(plan));
  EXPECT_EQ(peak(eager, MemoryTag::gathered), 4 * parameters_of(plan));
  EXPECT_EQ(lazy.outcomes[0]->state, eager.outcomes[0]->state);
}

TEST(ZeroBudget, BucketsDecideTheCallsAndNotTheBytes) {
  TrainPlan plan = budget_plan(2, 4);
  const Simulated one = run_simulated(plan, world_of(4));
  plan.layout.zero.reduce_bucket_elements = 20000;
  plan.layout.zero.allgather_bucket_elements = 20000;
  const Simulated many = run_simulated(plan, world_of(4));
  for (const OpKind kind : {OpKind::reduce_scatter, OpKind::publish}) {
    EXPECT_EQ(one.world.comm[std::size_t(kind)].calls, 4U * 2U) << name(kind);
    EXPECT_GT(many.world.comm[std::size_t(kind)].calls, 4U * 2U * 4U) << name(kind);
    EXPECT_EQ(sent(one, kind), sent(many, kind)) << name(kind);
  }
  EXPECT_LT(peak(many, MemoryTag::communication), peak(one, MemoryTag::communication));
}

TEST(ZeroBudget, OverlapIsSeenInVirtualTimeAndNotInTheBits) {
  for (const int stage : {2, 3}) {
    TrainPlan plan = budget_plan(stage, 4);
    plan.layout.zero.reduce_bucket_elements = 20000;
    plan.layout.zero.prefetch_elements = 60000;
    sim::WorldPlan world = world_of(4);
    world.noise = 0;
    plan.layout.zero.overlap_comm = false;
    const Simulated off = run_simulated(plan, world);
    plan.layout.zero.overlap_comm = true;
    const Simulated on = run_simulated(plan, world);
    EXPECT_LT(double(on.world.virtual_ns), 0.98 * double(off.world.virtual_ns)) << "stage " << stage;
    EXPECT_EQ(on.outcomes[0]->state, off.outcomes[0]->state);
  }
}

}  // namespace
}  // namespace seeksim::test
