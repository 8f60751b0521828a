// Passes, Reduction and Measurement, each by what it leaves for the next, on one rank.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "runtime/trainer/measurement.h"
#include "runtime/trainer/passes.h"
#include "runtime/trainer/reduction.h"
#include "tests/support/trainer_parts.h"

namespace seeksim::test {
namespace {

struct StepParts : TrainerParts {
  explicit StepParts(const TrainPlan& of = tiny_plan())
      : TrainerParts(of),
        reduction(bench, tensors, world),
        passes(bench, tensors, world, reduction),
        measurement(bench, tensors, world) {
    passes.schedule();
    tensors.allocate_flat();
    measurement.allocate();
    reduction.allocate();
    tensors.allocate_state();
    passes.allocate();
    tensors.draw();
    reduction.connect(passes.connect());
  }

  std::vector<float> gradients() {
    std::vector<float> all(std::size_t(tensors.flat_gradients().n));
    widen_to(tensors.flat_gradients(), all.data());
    return all;
  }
  void fill(float value) {
    for (Index i = 0; i < tensors.parameters().gradient_size(); ++i) tensors.sums(i, 1).get().data[0] = value;
  }
  std::vector<float> gradients_of_a_step() {
    reduction.begin_step();
    passes.run();
    reduction.finish(measurement.loss_of_owner());
    return gradients();
  }

  Reduction reduction;
  Passes passes;
  Measurement measurement;
};

// ---- Passes --------------------------------------------------------------------------------------------------------

// A reduction takes each backward pass; what the passes launch before that is theirs alone.
TEST(Passes, EachMicroBatchIsFetchedOnceAndInOrder) {
  StepParts parts;
  parts.seams.device.queue.keep = true;
  parts.reduction.begin_step();
  parts.passes.run();
  std::vector<std::int64_t> first;
  for (const Op& op : parts.seams.device.queue.ops) {
    if (op.kind == OpKind::data_load) first.push_back(op.sample);
  }
  EXPECT_EQ(first, (std::vector<std::int64_t>{0, 2, 4, 6}));
}

TEST(Passes, ForwardComesBeforeBackwardOfEveryMicroBatch) {
  StepParts parts;
  parts.seams.device.queue.keep = true;
  parts.reduction.begin_step();
  parts.passes.run();
  std::vector<std::pair<Phase, int>> seen;
  for (const Op& op : parts.seams.device.queue.ops) {
    const std::pair<Phase, int> now{op.phase, op.micro_batch};
    if (op.phase != Phase::data && (seen.empty() || seen.back() != now)) seen.push_back(now);
  }
  ASSERT_EQ(seen.size(), 8u);
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(seen[std::size_t(2 * i)], (std::pair<Phase, int>{Phase::forward, i}));
    EXPECT_EQ(seen[std::size_t(2 * i + 1)], (std::pair<Phase, int>{Phase::backward, i}));
  }
}

TEST(Passes, RoomIsMadeAgainAfterItWasGivenBack) {
  StepParts parts;
  EXPECT_TRUE(parts.passes.has_room());
  parts.passes.free_activations();
  EXPECT_FALSE(parts.passes.has_room());
  parts.passes.make_room();
  EXPECT_TRUE(parts.passes.has_room());
}

TEST(Passes, ASecondRunOfTheSameHardwareHasTheSameBits) {
  TrainPlan plan = tiny_plan();
  plan.recovery.rerun_and_compare = true;
  StepParts parts(plan);
  parts.gradients_of_a_step();
  EXPECT_FALSE(parts.passes.compare_runs().has_value());
  EXPECT_FALSE(StepParts().passes.compare_runs().has_value()) << "nothing is run twice";
}

// ---- Reduction -----------------------------------------------------------------------------------------------------

TEST(Reduction, TheSumDoesNotDependOnTheMicroBatches) {
  TrainPlan plan = tiny_plan();
  const std::vector<float> twos = StepParts(plan).gradients_of_a_step();
  plan.layout.micro_batch = plan.definition.global_batch;
  EXPECT_EQ(StepParts(plan).gradients_of_a_step(), twos);
}

TEST(Reduction, AnInterruptedStepLeavesNothingToTheNext) {
  StepParts parts;
  const std::vector<float> whole = parts.gradients_of_a_step();
  parts.reduction.begin_step();
  parts.passes.run();  // and never finished
  EXPECT_EQ(parts.gradients_of_a_step(), whole);
}

TEST(Reduction, TakesABackwardPassIntoTheNodesOfItsSamples) {
  StepParts parts;
  parts.reduction.begin_step();
  Index blocks = 0;
  parts.reduction.take({0, 8}, 0, 0, [&](GradientSink& sink) {
    blocks = Index(nodes_of({0, 8}, 8).size());
    for (Index i = 0; i < sink.open(0, 0, 4).n; ++i) sink.open(0, 0, 4).get().data[i] = 3;
  });
  EXPECT_EQ(blocks, 1);
  EXPECT_EQ(parts.reduction.trees().front().parts().front().get().data[0], 3);
}

// ---- Measurement ---------------------------------------------------------------------------------------------------

TEST(Measurement, TheNormIsThatOfAllGradients) {
  StepParts parts;
  parts.fill(0.5f);
  parts.measurement.measure();
  const StepResult result = parts.measurement.read();
  EXPECT_NEAR(result.grad_norm, 0.5 * std::sqrt(double(parts.tensors.parameters().trainable_size())), 1e-4);
  EXPECT_EQ(result.loss, 0.5f) << "the loss travels with the gradients";
  EXPECT_TRUE(result.finite);
}

TEST(Measurement, EveryValueThatIsNotFiniteIsCounted) {
  StepParts parts;
  parts.fill(1);
  parts.tensors.sums(5, 1).get().data[0] = std::numeric_limits<float>::quiet_NaN();
  parts.tensors.sums(6, 1).get().data[0] = std::numeric_limits<float>::infinity();
  parts.measurement.measure();
  const StepResult result = parts.measurement.read();
  EXPECT_EQ(result.nonfinite, 2);
  EXPECT_FALSE(result.finite);
}

TEST(Measurement, ALossThatIsNotFiniteMakesTheStepSo) {
  StepParts parts;
  parts.fill(1);
  parts.tensors.sums(parts.tensors.parameters().loss_offset(), 1).get().data[0] =
      std::numeric_limits<float>::infinity();
  parts.measurement.measure();
  const StepResult result = parts.measurement.read();
  EXPECT_EQ(result.nonfinite, 0);
  EXPECT_FALSE(result.finite);
}

}  // namespace
}  // namespace seeksim::test
