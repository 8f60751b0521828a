// SGD, with one moment or none, and the mean of weights that any optimizer may keep, in every layout: the bits are
// those of one rank.
#include <gtest/gtest.h>

#include "runtime/rules/bugs.h"
#include "runtime/rules/mutants.h"
#include "tests/runtime/checkpoint/checkpoint_world.h"
#include "tests/support/simulated_training.h"

namespace seeksim::test {
namespace {

// What is kept beside the weights: nothing, a momentum, a mean, both, and all that AdamW has and a mean.
struct Kept {
  const char *name, *type;
  double momentum, ema;
};
constexpr Kept kKept[] = {{"plain", "SGD", 0, 0},
                          {"momentum", "SGD", 0.9, 0},
                          {"mean", "SGD", 0, 0.75},
                          {"momentum and mean", "SGD", 0.5, 0.9},
                          {"adam and mean", "AdamW", 0, 0.9}};

TrainPlan sgd_plan(int stage, const Kept& kept, const TrainingPrecision& precision) {
  TrainPlan plan = saving_plan(stage);
  plan.checkpoint = {};
  OptimizerPlan& o = plan.definition.optimizer;
  o.type = kept.type;
  o.momentum = kept.momentum;
  o.dampening = 0.1;
  o.ema_decay = kept.ema;
  plan.definition.precision = {precision.compute, precision.gradients, precision.masters};
  plan.layout.micro_batch = 1;
  plan.layout.zero.reduce_bucket_elements = 700;
  plan.layout.zero.sub_group_elements = 300;
  return plan;
}

TEST(SgdTraining, EachThatKeepsOtherThingsIsAnother) {
  std::vector<std::uint64_t> weights, kept;
  for (const Kept& one : kKept) {
    const StateDigest state = run_alone(sgd_plan(0, one, kTrainingPrecisions[0])).outcome.state;
    weights.push_back(state.params);
    kept.push_back(state.optimizer);
  }
  EXPECT_NE(weights[0], weights[1]);
  EXPECT_EQ(weights[0], weights[2]) << "a mean is beside the training";
  EXPECT_NE(weights[3], weights[1]) << "another momentum";
  EXPECT_EQ(kept[0], 0u) << "nothing is kept";
  EXPECT_NE(kept[2], 0u);
  EXPECT_NE(kept[3], kept[1]);
}

TEST(SgdTraining, HasTheBitsOfOneRankAtEveryStageAndInEveryPrecision) {
  for (const Kept& kept : kKept) {
    for (const TrainingPrecision& precision : kTrainingPrecisions) {
      const Trained golden = run_alone(sgd_plan(0, kept, precision));
      for (const int stage : {0, 1, 2, 3}) {
        for (const int ranks : {2, 3}) {
          expect_state_of_one_rank(sgd_plan(stage, kept, precision), golden, ranks,
                                   std::string(kept.name) + ", " + precision.name + ", stage " + std::to_string(stage));
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST(SgdTraining, HasThemWhenItsStateIsOnTheHostOrInFiles) {
  for (const Kept& kept : kKept) {
    for (const TrainingPrecision& precision : kTrainingPrecisions) {
      const Trained golden = run_alone(sgd_plan(0, kept, precision));
      for (const Home home : {Home::host, Home::nvme}) {
        for (const int stage : {1, 2, 3}) {
          TrainPlan plan = sgd_plan(stage, kept, precision);
          plan.layout.offload.optimizer.home = home;
          plan.layout.offload.optimizer.nvme_path = "nvme";
          const std::string what = std::string(kept.name) + ", " + precision.name + ", stage " + std::to_string(stage);
          expect_state_of_one_rank(plan, golden, 3, what);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST(SgdTraining, HasThemAfterARecovery) {
  for (const Kept& kept : kKept) {
    for (const int stage : {0, 1, 2, 3}) {
      const TrainPlan plan = sgd_plan(stage, kept, kTrainingPrecisions[1]);
      const Trained golden = run_alone(plan);
      const TimeNs span = run_simulated(plan, world_of(4)).world.virtual_ns;
      for (int part = 1; part < 8; part += 2) {
        const Simulated run =
            run_simulated(plan, world_of(4), [&](sim::World& w) { w.kill_at(2, span * part / 8, [] {}); });
        ASSERT_EQ(run.finished().size(), 3u) << kept.name << " stage " << stage << " part " << part;
        for (const int rank : run.finished())
          ASSERT_EQ(run.outcomes[std::size_t(rank)]->state, golden.outcome.state) << kept.name << " stage " << stage;
      }
    }
  }
}

TEST(SgdTraining, HasThemWhenAnotherWorldGoesOnFromItsCheckpoint) {
  for (const Kept& kept : kKept)
    for (const int stage : {0, 1, 2, 3})
      expect_another_world_goes_on(sgd_plan(stage, kept, kTrainingPrecisions[1]), stage,
                                   kept.name + std::string(" stage ") + std::to_string(stage));
}

TEST(SgdTraining, MistakesInItAreSeen) {
  for (const Mutant mutant :
       {Mutant::sgd_dampens_first_step, Mutant::sgd_rate_in_momentum, Mutant::sgd_decay_outside_momentum}) {
    TrainPlan plan = sgd_plan(0, kKept[1], kTrainingPrecisions[0]);
    plan.definition.optimizer.weight_decay = 0.1;
    const StateDigest right = run_alone(plan).outcome.state;
    plan.bug.mutant = mutant;
    EXPECT_NE(run_alone(plan).outcome.state, right) << info(mutant).name;
  }
}

TEST(SgdTraining, AnotherMomentumOrMeanDoesNotGoOnFromItsCheckpoint) {
  for (const bool mean : {false, true}) {
    TrainPlan plan = sgd_plan(1, kKept[3], kTrainingPrecisions[0]);
    plan.checkpoint = saving_plan(1).checkpoint;
    const auto disks = std::make_shared<sim::Disks>();
    run_saving(plan, world_of(2), disks);
    plan.checkpoint.resume = true;
    (mean ? plan.definition.optimizer.ema_decay : plan.definition.optimizer.momentum) = 0.25;
    for (const auto& outcome : run_saving(plan, world_of(2), disks).outcomes) {
      ASSERT_TRUE(outcome);
      EXPECT_EQ(outcome->ending, Ending::stopped);
    }
  }
}

}  // namespace
}  // namespace seeksim::test
