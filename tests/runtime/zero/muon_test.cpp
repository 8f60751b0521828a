// Muon, which takes matrices as wholes, in every layout: the bits are those of one rank, since no shard ends inside of
// a matrix; and where one does, they are others.
#include <gtest/gtest.h>

#include "runtime/rules/bugs.h"
#include "runtime/rules/mutants.h"
#include "tests/runtime/checkpoint/checkpoint_world.h"
#include "tests/support/simulated_training.h"

namespace seeksim::test {
namespace {

TrainPlan muon_plan(int stage, const TrainingPrecision& precision) {
  TrainPlan plan = saving_plan(stage);
  plan.checkpoint = {};
  plan.definition.optimizer.type = "Muon";
  plan.definition.optimizer.lr = 0.02;
  plan.definition.optimizer.adamw_rate = 0.1;
  plan.definition.precision = {precision.compute, precision.gradients, precision.masters};
  plan.layout.micro_batch = 1;
  plan.layout.zero.reduce_bucket_elements = 700;
  plan.layout.zero.sub_group_elements = 300;
  return plan;
}

TEST(MuonTraining, IsNotThatOfAdamW) {
  TrainPlan plan = muon_plan(0, kTrainingPrecisions[0]);
  const Trained muon = run_alone(plan);
  plan.definition.optimizer.type = "AdamW";
  EXPECT_NE(run_alone(plan).outcome.state.params, muon.outcome.state.params);
}

// Worlds of more ranks than matrices, too: some own nothing.
TEST(MuonTraining, HasTheBitsOfOneRankAtEveryStageAndInEveryPrecision) {
  for (const TrainingPrecision& precision : kTrainingPrecisions) {
    const Trained golden = run_alone(muon_plan(0, precision));
    for (const int stage : {0, 1, 2, 3}) {
      for (const int ranks : {1, 2, 3, 4, 7}) {
        expect_state_of_one_rank(muon_plan(stage, precision), golden, ranks,
                                 std::string(precision.name) + ", stage " + std::to_string(stage));
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST(MuonTraining, HasThemWhenItsStateIsOnTheHostOrInFiles) {
  for (const TrainingPrecision& precision : kTrainingPrecisions) {
    const Trained golden = run_alone(muon_plan(0, precision));
    for (const Home home : {Home::host, Home::nvme}) {
      for (const int stage : {1, 2, 3}) {
        TrainPlan plan = muon_plan(stage, precision);
        plan.layout.offload.optimizer.home = home;
        plan.layout.offload.optimizer.nvme_path = "nvme";
        const std::string what = std::string(precision.name) + ", stage " + std::to_string(stage);
        for (const int ranks : {1, 3}) expect_state_of_one_rank(plan, golden, ranks, what);
        if (HasFatalFailure()) return;
      }
    }
  }
}

// The parameters to compute with are in files too, and pass through a window.
TEST(MuonTraining, HasThemWhenParametersAreInFiles) {
  for (const TrainingPrecision& precision : kTrainingPrecisions) {
    const Trained golden = run_alone(muon_plan(0, precision));
    for (const Home home : {Home::host, Home::nvme}) {
      TrainPlan plan = muon_plan(3, precision);
      plan.layout.offload.optimizer.home = home;
      plan.layout.offload.parameters.home = Home::nvme;
      plan.layout.offload.optimizer.nvme_path = plan.layout.offload.parameters.nvme_path = "nvme";
      plan.layout.offload.parameters.buffer_elements = 100;
      plan.layout.offload.parameters.max_in_cpu = 50;
      for (const int ranks : {1, 3}) expect_state_of_one_rank(plan, golden, ranks, precision.name);
      if (HasFatalFailure()) return;
    }
  }
}

TEST(MuonTraining, HasThemAfterARecovery) {
  for (const int stage : {0, 1, 2, 3}) {
    const TrainPlan plan = muon_plan(stage, kTrainingPrecisions[1]);
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

TEST(MuonTraining, HasThemWhenAnotherWorldGoesOnFromItsCheckpoint) {
  for (const int stage : {0, 1, 2, 3})
    expect_another_world_goes_on(muon_plan(stage, kTrainingPrecisions[1]), stage, "stage " + std::to_string(stage));
}

// The comparisons above, seen to fail: shards that end inside of matrices, old state read from files, and each mistake
// in the rule.
TEST(MuonTraining, MistakesInItAreSeen) {
  const TrainPlan right = muon_plan(2, kTrainingPrecisions[0]);
  const Trained golden = run_alone(right);
  for (const int stage : {1, 2, 3}) {
    TrainPlan cut = muon_plan(stage, kTrainingPrecisions[0]);
    cut.bug.bug = Bug::muon_cuts_matrices;
    const Simulated run = run_simulated(cut, world_of(2));
    ASSERT_TRUE(run.outcomes[0]);
    EXPECT_NE(run.outcomes[0]->state, golden.outcome.state) << "stage " << stage;
  }
  TrainPlan often = muon_plan(3, kTrainingPrecisions[0]);
  often.bug.bug = Bug::muon_each_micro_batch;
  EXPECT_NE(run_simulated(often, world_of(2)).outcomes[0]->state, golden.outcome.state);
  TrainPlan old = right;
  old.layout.offload.optimizer.home = Home::nvme;
  old.bug.bug = Bug::offload_reads_old_generation;
  old.bug.rank = 0, old.bug.step = 1;
  const Simulated run = run_simulated(old, world_of(2));
  ASSERT_TRUE(run.outcomes[0]);
  EXPECT_NE(run.outcomes[0]->state, golden.outcome.state);
  for (const Mutant mutant :
       {Mutant::muon_without_look_ahead, Mutant::muon_moves_by_momentum, Mutant::muon_one_round_less,
        Mutant::muon_scale_turned, Mutant::muon_clips_update, Mutant::muon_decays_by_scaled_rate}) {
    TrainPlan wrong = muon_plan(0, kTrainingPrecisions[0]);
    wrong.definition.gradient_clipping = 0.01;
    const StateDigest clipped = run_alone(wrong).outcome.state;
    wrong.bug.mutant = mutant;
    EXPECT_NE(run_alone(wrong).outcome.state, clipped) << info(mutant).name;
  }
}

TEST(MuonTraining, AdamWDoesNotGoOnFromItsCheckpointNorAnotherMomentum) {
  TrainPlan plan = muon_plan(1, kTrainingPrecisions[0]);
  plan.checkpoint = saving_plan(1).checkpoint;
  const auto disks = std::make_shared<sim::Disks>();
  run_saving(plan, world_of(2), disks);
  plan.checkpoint.resume = true;
  for (const char* change : {"type", "momentum", "rate"}) {
    TrainPlan other = plan;
    OptimizerPlan& o = other.definition.optimizer;
    if (change == std::string("type")) o.type = "AdamW";
    if (change == std::string("momentum")) o.momentum = 0.9;
    if (change == std::string("rate")) o.adamw_rate = 0.2;
    for (const auto& outcome : run_saving(other, world_of(2), disks).outcomes) {
      ASSERT_TRUE(outcome);
      EXPECT_EQ(outcome->ending, Ending::stopped) << change;
    }
  }
}

}  // namespace
}  // namespace seeksim::test
