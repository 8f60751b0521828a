// Lion, which has one moment, in every layout: the bits are those of one rank, and nothing is kept of a second moment.
#include <gtest/gtest.h>

#include "runtime/rules/bugs.h"
#include "runtime/rules/mutants.h"
#include "tests/runtime/checkpoint/checkpoint_world.h"
#include "tests/support/simulated_training.h"

namespace seeksim::test {
namespace {

TrainPlan lion_plan(int stage, const TrainingPrecision& precision) {
  TrainPlan plan = saving_plan(stage);
  plan.checkpoint = {};
  plan.definition.optimizer.type = "Lion";
  plan.definition.optimizer.betas = {0.9, 0.99};
  plan.definition.precision = {precision.compute, precision.gradients, precision.masters};
  plan.layout.micro_batch = 1;
  plan.layout.zero.reduce_bucket_elements = 700;
  plan.layout.zero.sub_group_elements = 300;
  return plan;
}

TEST(LionTraining, IsNotThatOfAdamW) {
  TrainPlan plan = lion_plan(0, kTrainingPrecisions[0]);
  const Trained lion = run_alone(plan);
  plan.definition.optimizer.type = "AdamW";
  EXPECT_NE(run_alone(plan).outcome.state.params, lion.outcome.state.params);
}

TEST(LionTraining, HasTheBitsOfOneRankAtEveryStageAndInEveryPrecision) {
  for (const TrainingPrecision& precision : kTrainingPrecisions) {
    const Trained golden = run_alone(lion_plan(0, precision));
    for (const int stage : {0, 1, 2, 3}) {
      for (const int ranks : {1, 2, 3, 4, 7}) {
        expect_state_of_one_rank(lion_plan(stage, precision), golden, ranks,
                                 std::string(precision.name) + ", stage " + std::to_string(stage));
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST(LionTraining, HasThemWhenItsStateIsOnTheHostOrInFiles) {
  for (const TrainingPrecision& precision : kTrainingPrecisions) {
    const Trained golden = run_alone(lion_plan(0, precision));
    for (const Home home : {Home::host, Home::nvme}) {
      for (const int stage : {1, 2, 3}) {
        TrainPlan plan = lion_plan(stage, precision);
        plan.layout.offload.optimizer.home = home;
        plan.layout.offload.optimizer.nvme_path = "nvme";
        const std::string what = std::string(precision.name) + ", stage " + std::to_string(stage);
        for (const int ranks : {1, 3}) expect_state_of_one_rank(plan, golden, ranks, what);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST(LionTraining, HasThemAfterARecovery) {
  for (const int stage : {0, 1, 2, 3}) {
    const TrainPlan plan = lion_plan(stage, kTrainingPrecisions[1]);
    const Trained golden = run_alone(plan);
    const TimeNs span = run_simulated(plan, world_of(4)).world.virtual_ns;
    int recovered = 0;
    for (int part = 1; part < 8; ++part) {
      const Simulated run =
          run_simulated(plan, world_of(4), [&](sim::World& w) { w.kill_at(2, span * part / 8, [] {}); });
      ASSERT_EQ(run.finished().size(), 3u) << "stage " << stage << " part " << part;
      for (const int rank : run.finished()) ASSERT_EQ(run.outcomes[std::size_t(rank)]->state, golden.outcome.state);
      recovered += run.observer.recovered_records.empty() ? 0 : 1;
    }
    EXPECT_GT(recovered, 3) << "stage " << stage;
  }
}

TEST(LionTraining, HasThemWhenAnotherWorldGoesOnFromItsCheckpoint) {
  for (const int stage : {0, 1, 2, 3})
    expect_another_world_goes_on(lion_plan(stage, kTrainingPrecisions[1]), stage, "stage " + std::to_string(stage));
}

// The comparisons above, seen to fail: old state read from files, and a mistake in the rule.
TEST(LionTraining, MistakesInItAreSeen) {
  const TrainPlan right = lion_plan(2, kTrainingPrecisions[0]);
  const Trained golden = run_alone(right);
  TrainPlan old = right;
  old.layout.offload.optimizer.home = Home::nvme;
  old.bug.bug = Bug::offload_reads_old_generation;
  old.bug.rank = 0, old.bug.step = 1;
  const Simulated run = run_simulated(old, world_of(2));
  ASSERT_TRUE(run.outcomes[0]);
  EXPECT_NE(run.outcomes[0]->state, golden.outcome.state);
  for (const Mutant mutant : {Mutant::lion_signs_new_moment, Mutant::lion_moves_by_value}) {
    TrainPlan wrong = lion_plan(0, kTrainingPrecisions[0]);
    wrong.bug.mutant = mutant;
    EXPECT_NE(run_alone(wrong).outcome.state, golden.outcome.state) << info(mutant).name;
  }
}

TEST(LionTraining, AdamWDoesNotGoOnFromItsCheckpoint) {
  TrainPlan plan = lion_plan(1, kTrainingPrecisions[0]);
  plan.checkpoint = saving_plan(1).checkpoint;
  const auto disks = std::make_shared<sim::Disks>();
  run_saving(plan, world_of(2), disks);
  plan.checkpoint.resume = true;
  plan.definition.optimizer.type = "AdamW";
  for (const auto& outcome : run_saving(plan, world_of(2), disks).outcomes) {
    ASSERT_TRUE(outcome);
    EXPECT_EQ(outcome->ending, Ending::stopped);
  }
}

}  // namespace
}  // namespace seeksim::test
