// Progress alone: steps, batches that are left out, the state that goes into a checkpoint.
#include "runtime/decide/progress.h"

#include <gtest/gtest.h>

#include "tests/support/plans.h"

namespace seeksim::test {
namespace {

TEST(Progress, EndsAfterTheStepsOfTheDefinition) {
  const TrainPlan plan = tiny_plan();
  Progress progress(plan);
  for (std::int64_t i = 0; i < plan.definition.steps; ++i, progress.advance()) EXPECT_FALSE(progress.finished());
  EXPECT_TRUE(progress.finished());
  EXPECT_EQ(progress.data_position(), plan.definition.steps * plan.definition.global_batch);
}

TEST(Progress, ADroppedBatchIsPassedOver) {
  TrainPlan plan = tiny_plan();
  plan.definition.drop_batches = {1};
  Progress progress(plan);
  EXPECT_EQ(progress.batch_of(0), 0);
  EXPECT_EQ(progress.batch_of(1), 2);
  progress.advance();
  progress.advance();
  EXPECT_EQ(progress.data_position(), 3 * plan.definition.global_batch);
}

TEST(Progress, WhatIsLeftOutIsDroppedFromTheUndoneStepOn) {
  const TrainPlan plan = tiny_plan();
  Progress progress(plan);
  progress.leave_out({0}, 2);
  EXPECT_TRUE(progress.dropped_batches().empty()) << "not before the checkpoint is there";
  progress.advance();
  progress.drop_left_out();
  EXPECT_EQ(progress.dropped_batches(), (std::vector<std::int64_t>{0, 1, 2}));
  EXPECT_EQ(progress.leaves_out_more(), 0);
}

TEST(Progress, StandsAgainWhereItsStateWasTaken) {
  TrainPlan plan = tiny_plan();
  plan.definition.scaler.kind = LossScalerKind::dynamic;
  Progress progress(plan);
  progress.account(0, true, 7, true);
  progress.advance();
  const RunState state = progress.state(5, 2);
  EXPECT_EQ(state.optimizer_steps, 5);
  EXPECT_EQ(state.epoch, 2u);
  Progress other(plan);
  other.restore(state);
  EXPECT_EQ(other.state(5, 2), state);
  EXPECT_EQ(other.skips().skipped, 1);
}

TEST(Progress, StopsAfterSoManySkippedStepsInARow) {
  TrainPlan plan = tiny_plan();
  plan.recovery.skip.stop_after = 2;
  Progress progress(plan);
  progress.account(0, true, 1, true);
  EXPECT_EQ(progress.stopped(), "");
  progress.account(1, true, 1, true);
  EXPECT_NE(progress.stopped(), "");
}

}  // namespace
}  // namespace seeksim::test
