// The oracle of the whole project, at its smallest: many ranks give the bits of one.
#include <gtest/gtest.h>

#include "tests/support/simulated_training.h"

namespace seeksim::test {
namespace {

void expect_bits_of_one_rank(const TrainPlan& plan, int ranks, bool native, const Trained& golden) {
  const Simulated run = run_simulated(plan, world_of(ranks, native));
  const std::string where = std::to_string(ranks) + " ranks, micro-batches of " +
                            std::to_string(plan.layout.micro_batch) + (native ? ", native" : ", exchange");
  ASSERT_EQ(run.world.end, sim::WorldEnd::finished) << where << "\n" << run.world.wait_for_graph;
  ASSERT_EQ(int(run.finished().size()), ranks) << where;
  for (int r = 0; r < ranks; ++r) {
    ASSERT_EQ(run.outcomes[std::size_t(r)]->state, golden.outcome.state) << where << ", rank " << r;
    for (std::size_t i = 0; i < golden.observer.steps.at(0).size(); ++i) {
      const StepRecord &one = golden.observer.steps.at(0)[i], &many = run.observer.steps.at(r)[i];
      ASSERT_EQ(one.loss, many.loss) << where;
      ASSERT_EQ(one.grad_norm, many.grad_norm) << where;
    }
  }
}

TEST(DataParallel, BitsAreThoseOfOneRankInEveryWorldAndMicroBatch) {
  for (const bool odd : {false, true}) {
    TrainPlan plan = tiny_plan(odd);
    const Trained golden = run_alone(plan);
    for (const int ranks : {1, 2, 3, 4, 5, 7, 8}) {
      for (const int micro : {1, 2, 3, 8}) {
        plan.layout.micro_batch = micro;
        for (const bool native : {true, false}) expect_bits_of_one_rank(plan, ranks, native, golden);
      }
    }
  }
}

TEST(DataParallel, MoreRanksThanSamplesServe) {
  TrainPlan plan = tiny_plan();
  plan.definition.global_batch = 3;
  const Trained golden = run_alone(plan);
  for (const bool native : {true, false}) expect_bits_of_one_rank(plan, 8, native, golden);
}

TEST(DataParallel, AModelSmallerThanABlockARankServes) {
  TrainPlan plan = tiny_plan();
  plan.definition.model.layers = 0;
  plan.definition.model.tied = false;
  const Trained golden = run_alone(plan);
  for (const bool native : {true, false}) expect_bits_of_one_rank(plan, 7, native, golden);
}

TEST(DataParallel, TheWorldsSeedChangesTheScheduleAndNotTheWeights) {
  const TrainPlan plan = tiny_plan();
  const Simulated a = run_simulated(plan, world_of(4, true, 1)), b = run_simulated(plan, world_of(4, true, 2));
  EXPECT_NE(a.world.fingerprint, b.world.fingerprint);
  EXPECT_EQ(a.outcomes[0]->state, b.outcomes[0]->state);
  EXPECT_EQ(a.world.fingerprint, run_simulated(plan, world_of(4, true, 1)).world.fingerprint);
}

TEST(DataParallel, GradientsHandedOutAreThoseOfOneRank) {
  TrainPlan plan = tiny_plan(true);
  const Trained golden = run_alone(plan, 1);
  Simulated result;
  sim::World world(world_of(3));
  result.observer.gradients_of = 1;
  world.run([&](Rank& rank) { train(rank, plan, result.observer); });
  ASSERT_EQ(result.observer.kept_gradients.size(), 3U);
  for (const auto& [rank, gradients] : result.observer.kept_gradients) {
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      EXPECT_EQ(gradients[i].values, golden.observer.kept_gradients.at(0)[i].values) << gradients[i].name;
    }
  }
}

TEST(DataParallel, FinalWeightsComeFromTheLowestRankOnly) {
  const TrainPlan plan = tiny_plan();
  KeepingObserver observer;
  std::vector<std::vector<NamedTensor>> weights(3);
  sim::World world(world_of(3));
  world.run([&](Rank& rank) { train(rank, plan, observer, &weights[std::size_t(rank.id)]); });
  EXPECT_EQ(weights[0].size(), 16U);
  EXPECT_TRUE(weights[1].empty() && weights[2].empty());
}

// wte has 41 * 25 = 1,025 elements: one more than a block of the norm.
TEST(DataParallel, ANormOfOneElementMoreThanItsBlocksIsThatOfOneRank) {
  TrainPlan plan = tiny_plan();
  plan.definition.model.width = 25;
  plan.definition.model.heads = 5;
  plan.definition.model.vocab = 41;
  plan.definition.gradient_clipping = 0.1;  // each norm decides the weights
  const Trained golden = run_alone(plan);
  for (const int stage : {1, 2, 3}) {
    plan.layout.zero = zero_plan(stage);
    const Simulated run = run_simulated(plan, world_of(2));
    for (std::size_t i = 0; i < golden.observer.steps.at(0).size(); ++i)
      EXPECT_EQ(run.observer.steps.at(1)[i].grad_norm, golden.observer.steps.at(0)[i].grad_norm) << stage;
  }
}

TEST(DataParallel, EachStepCountsTheMicroBatchesThatItRanTwice) {
  struct Reruns : KeepingObserver {
    std::vector<std::int64_t> counts;
    void rerun(int rank, const RerunRecord& record) override {
      if (rank == 0) counts.push_back(record.micro_batches);
    }
  } observer;
  TrainPlan plan = tiny_plan();
  plan.recovery.rerun_and_compare = true;
  sim::World world(world_of(2));
  world.run([&](Rank& rank) { EXPECT_EQ(train(rank, plan, observer).ending, Ending::finished); });
  EXPECT_EQ(observer.counts, (std::vector<std::int64_t>{2, 2, 2}));
}

}  // namespace
}  // namespace seeksim::test
