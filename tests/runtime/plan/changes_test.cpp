// Changes of the configuration in the middle of a training: what is in force when, and which one a divergence undoes.
#include "runtime/plan/changes.h"

#include <gtest/gtest.h>

#include "runtime/decide/progress.h"
#include "runtime/decide/run_state.h"
#include "tests/support/plans.h"

namespace seeksim::test {
namespace {

TrainPlan changing_plan() {
  TrainPlan plan = tiny_plan();
  plan.definition.gradient_clipping = 1;
  plan.definition.changes = {{4, 0.5, std::nullopt}, {8, std::nullopt, 0.0}, {12, 2.0, 3.0}};
  plan.recovery.rollback = {true, 3};
  return plan;
}

TEST(Changes, AreInForceFromTheirStepOn) {
  const Definition d = changing_plan().definition;
  const std::vector<std::pair<std::int64_t, InForce>> expected = {
      {0, {1, 1}}, {3, {1, 1}}, {4, {0.5, 1}}, {8, {0.5, 0}}, {11, {0.5, 0}}, {12, {2, 3}}, {100, {2, 3}}};
  for (const auto& [step, now] : expected) {
    EXPECT_EQ(in_force(d, {}, step).lr_scale, now.lr_scale) << step;
    EXPECT_EQ(in_force(d, {}, step).gradient_clipping, now.gradient_clipping) << step;
  }
}

TEST(Changes, OneThatIsUndoneLeavesTheOnesBeforeIt) {
  const Definition d = changing_plan().definition;
  const std::vector<std::int64_t> undone = {12};
  EXPECT_EQ(in_force(d, undone, 20).lr_scale, 0.5);
  EXPECT_EQ(in_force(d, undone, 20).gradient_clipping, 0);
}

TEST(Changes, OnlyARecentOneIsUndone) {
  const TrainPlan plan = changing_plan();
  EXPECT_EQ(change_to_undo(plan, {}, 4), std::nullopt) << "its own step's numbers come before its update";
  EXPECT_EQ(change_to_undo(plan, {}, 5), 4);
  EXPECT_EQ(change_to_undo(plan, {}, 7), 4);
  EXPECT_EQ(change_to_undo(plan, {}, 8), std::nullopt) << "four steps after it";
  EXPECT_EQ(change_to_undo(plan, {}, 13), 12);
  EXPECT_EQ(change_to_undo(plan, std::vector<std::int64_t>{12}, 13), std::nullopt) << "the one before it is too old";
  TrainPlan off = plan;
  off.recovery.rollback.on = false;
  EXPECT_EQ(change_to_undo(off, {}, 5), std::nullopt);
}

TEST(Changes, ACheckpointIsKeptWhileAChangeAfterItMayBeUndone) {
  const TrainPlan plan = changing_plan();
  EXPECT_TRUE(may_undo_within(plan, {}, 6, 4, 6));
  EXPECT_TRUE(may_undo_within(plan, {}, 7, 2, 6));
  EXPECT_FALSE(may_undo_within(plan, {}, 6, 5, 6)) << "it is later than the change";
  EXPECT_FALSE(may_undo_within(plan, {}, 6, 2, 4)) << "a newer one is there";
  EXPECT_FALSE(may_undo_within(plan, {}, 8, 4, 6)) << "too late";
  EXPECT_FALSE(may_undo_within(plan, std::vector<std::int64_t>{4}, 6, 4, 6)) << "it is undone already";
}

TEST(Changes, StayUndoneWhateverCheckpointTheRunGoesBackTo) {
  const TrainPlan plan = changing_plan();
  Progress progress(plan);
  const RunState before = progress.state(0, 1);
  progress.undo_changes({12});
  progress.restore(before);
  EXPECT_EQ(progress.undone_changes(), (std::vector<std::int64_t>{12}));
  RunState other = before;
  other.undone_changes = {4};
  progress.restore(other);
  EXPECT_EQ(progress.undone_changes(), (std::vector<std::int64_t>{4, 12}));
}

TEST(Changes, ThatBeginLaterDecideNothingOfACheckpoint) {
  const Definition with = changing_plan().definition;
  Definition without = with;
  without.changes.clear();
  EXPECT_EQ(definition_digest(with, 4), definition_digest(without, 4)) << "steps 0 to 3 are committed";
  EXPECT_NE(definition_digest(with, 5), definition_digest(without, 5));
  Definition other = with;
  other.changes[0].lr_scale = 0.25;
  EXPECT_NE(definition_digest(with, 5), definition_digest(other, 5));
}

}  // namespace
}  // namespace seeksim::test
