// The parts that come after a step's vote: Saves, StateTransfer, Pace, Records, FinalState, each on one rank of a world
// whose other members are only names.
#include <gtest/gtest.h>

#include "runtime/trainer/final_state.h"
#include "runtime/trainer/pace.h"
#include "runtime/trainer/records.h"
#include "runtime/trainer/saves.h"
#include "runtime/trainer/state_transfer.h"
#include "tests/support/trainer_parts.h"

namespace seeksim::test {
namespace {

struct AfterParts : TrainerParts {
  explicit AfterParts(const TrainPlan& of = tiny_plan(), int ranks = 1)
      : TrainerParts(of, ranks),
        whole(bench, tensors, world),
        records(bench, tensors, world, whole),
        saves(bench, tensors, world, vote),
        transfer(bench, tensors, world, vote, saves),
        pace(bench, world, transfer),
        ending(bench, tensors, world, whole, records) {
    vote.carries(saves);
    vote.carries(pace);
    allocate_tensors();
  }
  WholeTensors whole;
  Records records;
  Saves saves;
  StateTransfer transfer;
  Pace pace;
  FinalState ending;
};

// ---- Saves ---------------------------------------------------------------------------------------------------------

TEST(Saves, WithoutAFolderNothingIsEverDue) {
  AfterParts parts;
  EXPECT_FALSE(parts.saves.on());
  parts.saves.save();
  parts.saves.finish();
  EXPECT_TRUE(parts.control.asked.empty()) << "no vote is needed";
}

TEST(Saves, ARunThatResumesBeginsWithTheNewestCheckpoint) {
  TrainPlan plan = tiny_plan();
  plan.checkpoint.path = "checkpoints";
  EXPECT_FALSE(AfterParts(plan).saves.loads());
  plan.checkpoint.resume = true;
  AfterParts parts(plan);
  EXPECT_TRUE(parts.saves.loads());
  parts.saves.begin_with(-1);
  EXPECT_FALSE(parts.saves.loads()) << "the members that it joins load none";
}

TEST(Saves, WhereThereNeverWasACheckpointTheRunBeginsAnew) {
  TrainPlan plan = tiny_plan();
  plan.checkpoint.path = "checkpoints";
  plan.checkpoint.resume = true;
  AfterParts parts(plan);
  EXPECT_FALSE(parts.saves.load());
  EXPECT_STREQ(parts.control.asked.back().tensor, "checkpoint to load");
  EXPECT_EQ(parts.bench.progress.step(), 0);
  EXPECT_FALSE(parts.saves.loads());
}

// ---- StateTransfer -------------------------------------------------------------------------------------------------

TEST(StateTransfer, AReplicaIsLostWithTheLastRankOfAStage) {
  TrainPlan plan = tiny_plan();
  plan.definition.model.layers = 2;
  plan.layout.parallel.pipeline = 2;
  AfterParts parts(plan, 4);
  const Seats seats{4, {}};
  parts.bench.progress.advance();
  EXPECT_EQ(parts.transfer.lost({{0, 1, 2, 3}, seats}, {}, {0, 1, 2, 3}), "");
  EXPECT_NE(parts.transfer.lost({{0, 1}, seats}, {}, {0, 1}), "") << "both of one stage";
  EXPECT_NE(parts.transfer.lost({{0, 1, 2, 3}, seats}, {2, 3}, {0, 1, 2, 3}), "") << "who joins holds nothing";
}

TEST(StateTransfer, ParametersAreWithAllWhenTheStepIsPublished) {
  AfterParts parts;
  EXPECT_FALSE(parts.transfer.published());
  parts.transfer.step_committed();
  EXPECT_TRUE(parts.transfer.published()) << "each rank has updated all of them";
  TrainPlan plan = tiny_plan();
  plan.layout.zero.stage = 1;
  AfterParts sharded(plan);
  sharded.transfer.step_committed();
  EXPECT_FALSE(sharded.transfer.published());
}

TEST(StateTransfer, ARankThatIsTakenInJoinsUntilItHasTheState) {
  AfterParts parts;
  HandOver given;
  given.run = parts.bench.progress.state(3, 0);
  parts.transfer.take_over(given);
  EXPECT_TRUE(parts.transfer.joining());
  EXPECT_EQ(parts.tensors.optimizer_steps(), 3);
  parts.transfer.settle({});
  EXPECT_FALSE(parts.transfer.joining());
}

// ---- Pace ----------------------------------------------------------------------------------------------------------

TrainPlan watched_plan() {
  TrainPlan plan = tiny_plan();
  plan.definition.steps = 100;
  plan.recovery.straggler = {true, 0.7, 2, true};
  return plan;
}

// Steps in which rank 0 takes 100 ns and rank 1 `other_ns`.
void vote_on_steps(Pace& pace, int steps, TimeNs other_ns) {
  Agreement agreement;
  agreement.members = {0, 1};
  agreement.ballots.resize(2);
  agreement.ballots[0].busy_ns = 100;
  agreement.ballots[1].busy_ns = other_ns;
  for (int i = 0; i < steps; ++i) pace.hear(Vote::step, agreement, true);
}

TEST(Pace, ARankThatIsTooSlowForSoManyStepsLeaves) {
  AfterParts parts(watched_plan(), 2);
  vote_on_steps(parts.pace, 2, 1000);  // the first step of a world is no measure
  EXPECT_NO_THROW(parts.pace.let_straggler_go());
  vote_on_steps(parts.pace, 1, 1000);
  try {
    parts.pace.let_straggler_go();
    FAIL() << "rank 1 stays";
  } catch (const SeamError& error) {
    EXPECT_EQ(error.kind(), ErrorKind::too_slow);
    EXPECT_EQ(error.op().peer, 1);
  }
  EXPECT_NO_THROW(parts.pace.let_straggler_go()) << "it leaves once";
}

TEST(Pace, AnEvenWorldLosesNobody) {
  AfterParts parts(watched_plan(), 2);
  vote_on_steps(parts.pace, 10, 120);
  EXPECT_NO_THROW(parts.pace.let_straggler_go());
}

TEST(Pace, VotesAboutOtherThingsAreNoMeasure) {
  AfterParts parts(watched_plan(), 2);
  vote_on_steps(parts.pace, 1, 1000);
  Agreement other;
  for (int i = 0; i < 10; ++i) parts.pace.hear(Vote::checkpoint, other, true);
  Ballot own;
  own.busy_ns = 3;
  parts.pace.tell(Vote::checkpoint, own);
  EXPECT_EQ(own.busy_ns, 3);
  EXPECT_NO_THROW(parts.pace.let_straggler_go());
}

TEST(Pace, ALossFarAboveTheMeanDiverges) {
  TrainPlan plan = tiny_plan();
  plan.recovery.divergence = {true, 5, 2, 0, 1};
  AfterParts parts(plan);
  StepResult result;
  result.loss = result.grad_norm = 1;
  parts.pace.look_for_divergence(result);
  parts.pace.look_for_divergence(result);
  EXPECT_EQ(parts.pace.window().size(), 2u);
  result.loss = 6;
  parts.world.connect(3);
  try {
    parts.pace.look_for_divergence(result);
    FAIL() << "6 is 6 times the mean";
  } catch (const SeamError& error) {
    EXPECT_EQ(error.kind(), ErrorKind::diverged);
    EXPECT_EQ(error.op().epoch, 3u);
  }
}

// ---- Records -------------------------------------------------------------------------------------------------------

TEST(Records, MemoryThatNobodyWroteIsNamed) {
  AfterParts parts;
  EXPECT_EQ(parts.records.look_for_poison(false).where, "");
  const PoisonFound found = parts.records.look_for_poison(true);  // no pass has made gradients yet
  EXPECT_NE(found.where.find("'gradients', element 0"), std::string::npos) << found.where;
  EXPECT_FALSE(found.at_source);
}

TEST(Records, PoisonInAParameterIsAtItsSource) {
  AfterParts parts;
  std::memcpy(parts.tensors.flat_parameters().buffer->data, &kPoisonFresh, sizeof kPoisonFresh);
  EXPECT_TRUE(parts.records.look_for_poison(true).at_source);
}

TEST(Records, TheRecordOfAStepHoldsTheScaleThatItWasComputedWith) {
  TrainPlan plan = tiny_plan();
  plan.definition.scaler.kind = LossScalerKind::dynamic;
  AfterParts parts(plan);
  const double used = parts.bench.progress.scaler().scale();
  parts.bench.progress.advance();
  StepResult result;
  result.nonfinite = 3;
  const StepRecord& record = parts.records.step_committed(result, false, 0.25);
  EXPECT_EQ(record.step, 0);
  EXPECT_EQ(record.loss_scale, used);
  EXPECT_EQ(record.lr, 0.25);
  EXPECT_TRUE(record.skipped);
}

TEST(Records, GradientsAreAskedForStepByStep) {
  AfterParts parts;
  parts.observer.gradients_of = 1;
  clear_values(parts.bench.compute, "gradients", SEEKSIM_SITE, parts.tensors.flat_gradients());
  for (std::int64_t step = 0; step < 2; ++step, parts.bench.progress.advance()) {
    parts.records.begin_step();
    parts.records.gradients(step);
    EXPECT_EQ(parts.observer.kept_gradients.size(), std::size_t(step));
  }
}

// ---- FinalState ----------------------------------------------------------------------------------------------------

TEST(FinalState, DigestsFollowTheWeights) {
  AfterParts parts;
  const StateDigest before = parts.ending.state(true);
  EXPECT_EQ(before, AfterParts().ending.state(true));
  EXPECT_EQ(before.by_tensor.size(), parts.tensors.parameters().all().size());
  static_cast<float*>(static_cast<void*>(parts.tensors.flat_weights().buffer->data))[0] += 1;
  EXPECT_NE(parts.ending.state(true).params, before.params);
}

TEST(FinalState, WeightsHaveTheirNamesInHuggingFacesFiles) {
  AfterParts parts;
  const std::vector<NamedTensor> given = initial_weights(parts.plan.definition);
  const std::vector<NamedTensor> held = parts.ending.weights();
  ASSERT_EQ(held.size(), given.size());
  for (std::size_t i = 0; i < held.size(); ++i) {
    EXPECT_EQ(held[i].name, given[i].name);
    EXPECT_EQ(held[i].values, given[i].values) << held[i].name;
  }
}

TEST(FinalState, IsConcludedWhenAllHaveHeardOfIt) {
  AfterParts parts;
  StateDigest gathered;
  gathered.params = 42;
  EXPECT_FALSE(parts.ending.concluded());
  parts.ending.conclude(gathered);
  EXPECT_EQ(parts.ending.state(true).params, 42u);
}

}  // namespace
}  // namespace seeksim::test
