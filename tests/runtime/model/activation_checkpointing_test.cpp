// Activation checkpointing: which layers form segments, that a recomputed run has the bits of one that keeps all, that
// it needs less memory, and that a recomputation which differs is seen.
#include <gtest/gtest.h>

#include "runtime/layout/segments.h"
#include "runtime/rules/bugs.h"
#include "tests/support/simulated_training.h"

namespace seeksim::test {
namespace {

CheckpointingPlan every(int n, bool on_host = false) { return {n, {}, on_host}; }

TEST(Segments, CoverEveryLayerOnce) {
  using Segments = std::vector<Segment>;
  EXPECT_EQ(segments_of(3, {}), (Segments{{0, 1, false}, {1, 2, false}, {2, 3, false}}));
  EXPECT_EQ(segments_of(3, every(1)), (Segments{{0, 1, true}, {1, 2, true}, {2, 3, true}}));
  EXPECT_EQ(segments_of(5, every(2)), (Segments{{0, 2, true}, {2, 4, true}, {4, 5, true}}));
  EXPECT_EQ(segments_of(2, every(7)), (Segments{{0, 2, true}}));
  EXPECT_EQ(segments_of(3, {0, {1, 9}, false}), (Segments{{0, 1, false}, {1, 2, true}, {2, 3, false}}));
  EXPECT_EQ(segments_of(0, every(1)), Segments{});
}

TEST(Segments, UseTheLastLayersParametersTwiceWithOneFetch) {
  std::vector<int> backward;
  for (const ModuleUse& use : module_uses(5, every(3))) {
    if (use.phase != Phase::forward) backward.push_back(use.phase == Phase::recompute ? -use.module : use.module);
  }
  // The head; layers 3 and 4 (modules 4 and 5); layers 0 to 2; the embeddings. Negative: recomputed.
  EXPECT_EQ(backward, (std::vector<int>{6, -4, 5, 4, -1, -2, 3, 2, 1, 0}));
}

TrainPlan deep_plan(int layers) {
  TrainPlan plan = tiny_plan(true);
  plan.definition.model.layers = layers;
  plan.definition.model.dropout = {0.1, 0.2, 0.1};
  plan.definition.steps = 2;
  return plan;
}

TEST(Checkpointing, ChangesNoBit) {
  for (const ElementType compute : {ElementType::f32, ElementType::bf16}) {
    TrainPlan plan = deep_plan(5);
    plan.definition.precision.compute = compute;
    const Trained golden = run_alone(plan);
    const CheckpointingPlan plans[] = {
        every(1), every(2), every(5), {0, {1, 3}, false}, every(1, true), every(2, true), {0, {0, 2, 4}, true}};
    for (const CheckpointingPlan& checkpointing : plans) {
      plan.layout.checkpointing = checkpointing;
      for (const int stage : {0, 3}) {
        plan.layout.zero = zero_plan(stage);
        plan.layout.zero.persistence_threshold_elements = 0;
        const Simulated run = run_simulated(plan, world_of(2));
        ASSERT_EQ(run.finished().size(), 2U) << run.world.wait_for_graph;
        for (const auto& outcome : run.outcomes)
          EXPECT_EQ(outcome->state, golden.outcome.state)
              << "every " << checkpointing.every << ", on host " << checkpointing.on_host << ", stage " << stage;
      }
    }
  }
}

TEST(Checkpointing, KeepsWhatItPromises) {
  TrainPlan plan = deep_plan(6);
  const auto device = [&](const CheckpointingPlan& checkpointing, MemoryTag tag) {
    plan.layout.checkpointing = checkpointing;
    return run_simulated(plan, world_of(1)).world.memory_peak_by_tag[std::size_t(tag)];
  };
  const std::size_t input =
      std::size_t(plan.layout.micro_batch * plan.definition.model.context * plan.definition.model.width) *
      sizeof(float);
  EXPECT_EQ(device({}, MemoryTag::checkpoints), 0U);
  EXPECT_EQ(device(every(1), MemoryTag::checkpoints), 6 * input);
  EXPECT_EQ(device(every(2), MemoryTag::checkpoints), 3 * input);
  EXPECT_EQ(device(every(1, true), MemoryTag::checkpoints), 2 * input);
  const std::size_t all = device({}, MemoryTag::activations), one = device(every(1), MemoryTag::activations),
                    two = device(every(2), MemoryTag::activations),
                    some = device({0, {0, 5}, false}, MemoryTag::activations);
  // Without: a layer and the stream into it, six times. With: one layer, or two and the stream between them.
  const std::size_t layer = two - one - input;
  EXPECT_EQ(all, one + 5 * layer + 6 * input);
  EXPECT_EQ(some, one + 4 * layer + 4 * input) << "four that are kept, and one for the two that are not";
}

TEST(Checkpointing, OnTheHostItIsInPinnedMemoryThere) {
  TrainPlan plan = deep_plan(4);
  plan.layout.checkpointing = every(1, true);
  const Simulated run = run_simulated(plan, world_of(1));
  const std::size_t input =
      std::size_t(plan.layout.micro_batch * plan.definition.model.context * plan.definition.model.width) *
      sizeof(float);
  EXPECT_EQ(run.world.host_peak_by_tag[std::size_t(MemoryTag::checkpoints)], 4 * input);
}

TEST(Checkpointing, ARecomputationThatDropsOtherValuesIsSeen) {
  TrainPlan plan = deep_plan(2);
  const Trained golden = run_alone(plan);
  plan.layout.checkpointing = every(1);
  EXPECT_EQ(run_alone(plan).outcome.state, golden.outcome.state);
  plan.bug.bug = Bug::recompute_other_dropout;
  EXPECT_NE(run_alone(plan).outcome.state, golden.outcome.state);
}

// A value that was not finite in forward is not born again when it is computed again.
TEST(Checkpointing, ABirthIsReportedOnce) {
  struct Births : KeepingObserver {
    std::vector<NonFiniteBirth> births;
    void nonfinite_born(int, std::int64_t, const NonFiniteBirth& birth) override { births.push_back(birth); }
  };
  TrainPlan plan = deep_plan(2);
  plan.definition.steps = 1;
  plan.definition.model.init_stddev = 2e18;  // products of queries and keys overflow
  plan.provenance.on = true;
  const auto birth = [&](const CheckpointingPlan& checkpointing) {
    plan.layout.checkpointing = checkpointing;
    OneRank world;
    Births observer;
    train(world.rank, plan, observer);
    EXPECT_EQ(observer.births.size(), 1U);
    return observer.births.at(0).op;
  };
  const Op kept = birth({}), recomputed = birth(every(1));
  EXPECT_EQ(kept.phase, Phase::forward);
  EXPECT_EQ(recomputed.phase, Phase::forward);
  EXPECT_EQ(recomputed.layer, kept.layer);
  EXPECT_STREQ(recomputed.site, kept.site);
}

}  // namespace
}  // namespace seeksim::test
