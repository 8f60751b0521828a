// World alone: places, and the cut of a step.
#include "runtime/trainer/world.h"

#include <gtest/gtest.h>

#include "tests/support/trainer_parts.h"

namespace seeksim::test {
namespace {

TEST(World, MicroBatchesOfAllMembersAreTheSamplesOfAStep) {
  for (const int stage : {0, 2}) {
    TrainPlan plan = tiny_plan(true);
    plan.layout.zero.stage = stage;
    TrainerParts parts(plan, 3);
    Index samples = 0;
    for (int member = 0; member < 3; ++member) samples += parts.world.samples_of(member);
    EXPECT_EQ(samples, plan.definition.global_batch) << "stage " << stage;
  }
}

TEST(World, AMicroBatchIsAtMostAsLargeAsThePlanSays) {
  TrainerParts parts(tiny_plan(true), 3);
  for (int member = 0; member < 3; ++member) {
    for (const SampleRange& samples : parts.world.micro_batches_of(member))
      EXPECT_LE(samples.size(), parts.plan.layout.micro_batch);
  }
}

TEST(World, PartsOfTheModelAreCountedOverStagesAndWays) {
  TrainPlan plan = tiny_plan();
  plan.definition.model.layers = 2;
  plan.layout.parallel.pipeline = 2;
  plan.definition.model.heads = 8;
  plan.layout.parallel.tensor = 2;
  TrainerParts parts(plan, 4);
  EXPECT_EQ(parts.world.part(), 0);
  EXPECT_EQ(parts.world.part_of({1, 0, 1}), 3);
  EXPECT_EQ(parts.world.grid().replicas(), 1);
}

TEST(World, WithoutCommunicatorsItStandsInTheEpochOfTheControlPlane) {
  TrainerParts parts(tiny_plan(), 2);
  EXPECT_EQ(parts.world.communicators().size(), 1u);
  EXPECT_TRUE(parts.world.is_lowest_rank());
  parts.world.disconnect();
  EXPECT_TRUE(parts.world.communicators().empty());
  EXPECT_FALSE(parts.world.is_lowest_rank());
  parts.control.enter_epoch(4, std::vector<int>{0, 1});
  EXPECT_EQ(parts.world.epoch(), 4u);
}

TEST(World, ARankOfABrokenReplicaHasNoPlace) {
  TrainPlan plan = tiny_plan();
  plan.definition.model.heads = 8;
  plan.layout.parallel.tensor = 2;
  TrainerParts parts(plan, 2);
  EXPECT_THROW(parts.world.seat({{1}, {2, {}}}), std::logic_error);
}

}  // namespace
}  // namespace seeksim::test
