// Experts that tensor ways have slabs of: the bits of one rank, whatever the cut, with expert groups too; what the
// slabs change in the definition; and mistakes that are seen.
#include <gtest/gtest.h>

#include "runtime/rules/bugs.h"
#include "tests/runtime/checkpoint/checkpoint_world.h"

namespace seeksim::test {
namespace {

TrainPlan slabs_plan(int tensor, int expert = 1, bool sequence_parallel = false) {
  TrainPlan plan = tiny_plan();
  ModelPlan& m = plan.definition.model;
  m.family = "llama", m.tied = false;
  m.layers = 2, m.heads = 8, m.width = 32, m.kv_heads = 8, m.ffn = 24, m.context = 15, m.vocab = 29;
  m.experts = {.count = 4, .per_token = 2, .capacity_factor = 1, .normalized = true, .balance = 0.1, .z = 0.01};
  m.experts.slabs = true;
  plan.definition.global_batch = 7;
  plan.layout.parallel.tensor = tensor;
  plan.layout.parallel.expert = expert;
  plan.layout.parallel.sequence_parallel = sequence_parallel;
  return plan;
}

TEST(ExpertTensor, BitsAreThoseOfOneRankInEveryCut) {
  struct World {
    int ranks, tensor, expert;
  };
  for (const ElementType type : {ElementType::f32, ElementType::bf16, ElementType::f16}) {
    TrainPlan definition = slabs_plan(1);
    definition.definition.precision.compute = type;
    const Trained golden = run_alone(undivided(definition));
    for (const auto& [ranks, tensor, expert] :
         {World{2, 2, 1}, {4, 2, 1}, {8, 8, 1}, {4, 2, 2}, {8, 4, 2}, {8, 2, 4}, {8, 2, 2}}) {
      for (const int stage : {0, 1, 2, 3}) {
        TrainPlan plan = slabs_plan(tensor, expert, stage % 2 == 1);
        plan.definition = definition.definition;
        plan.layout.zero.stage = stage;
        plan.layout.micro_batch = stage < 2 ? 3 : 1;
        EXPECT_EQ(unlike_one_rank(plan, ranks, golden), "") << int(type) << ", stage " << stage << ", " << ranks
                                                            << " ranks, " << tensor << " ways, groups of " << expert;
      }
    }
  }
}

// Of a batch of 3 the fourth of those who share it has none: it works for the others' tokens, with all its ways.
TEST(ExpertTensor, ARankWithoutSamplesWorksForItsGroup) {
  TrainPlan plan = slabs_plan(2, 2);
  plan.definition.global_batch = 3;
  const Trained golden = run_alone(undivided(plan));
  for (const int stage : {0, 1, 2, 3}) {
    plan.layout.zero.stage = stage;
    plan.layout.micro_batch = 1;
    EXPECT_EQ(unlike_one_rank(plan, 8, golden), "") << stage;
  }
}

TEST(ExpertTensor, ActivationsComputedAgainSendTokensWhereTheyWent) {
  for (const int expert : {1, 2}) {
    TrainPlan plan = slabs_plan(2, expert, true);
    plan.definition.model.dropout.residual = 0.2;
    const Trained golden = run_alone(undivided(plan));
    for (const int every : {1, 2}) {
      plan.layout.checkpointing.every = every;
      EXPECT_EQ(unlike_one_rank(plan, 4, golden), "") << every;
    }
  }
}

// Slabs are another order of sums, and no other training: what they change is a rounding.
TEST(ExpertTensor, SlabsChangeRoundingsAlone) {
  TrainPlan plan = slabs_plan(1);
  plan.definition.precision.compute = ElementType::f32;
  const Trained slabs = run_alone(plan);
  plan.definition.model.experts.slabs = false;
  const Trained whole = run_alone(plan);
  EXPECT_FALSE(slabs.outcome.state == whole.outcome.state);
  const StepRecord &a = slabs.observer.steps.at(0)[0], &b = whole.observer.steps.at(0)[0];
  EXPECT_EQ(a.loss, b.loss) << "nothing forward is summed otherwise";
  EXPECT_NEAR(a.grad_norm, b.grad_norm, 1e-6 * b.grad_norm);
  for (std::size_t i = 0; i < slabs.weights.size(); ++i) {
    for (std::size_t at = 0; at < slabs.weights[i].values.size(); ++at)
      ASSERT_NEAR(slabs.weights[i].values[at], whole.weights[i].values[at], 1e-3) << slabs.weights[i].name;
  }
}

TEST(ExpertTensor, MistakesAreSeen) {
  for (const int expert : {1, 2}) {
    for (const Bug bug : {Bug::router_gradient_of_each_way, Bug::gates_before_ways_sum, Bug::gate_gradient_of_own_slabs,
                          Bug::slabs_to_next_expert, Bug::experts_norm_of_first_way, Bug::lost_partial_sum}) {
      TrainPlan plan = slabs_plan(2, expert);
      plan.definition.gradient_clipping = 0.01;
      const Trained clipped = run_alone(undivided(plan));
      plan.bug = PlantedBug{bug};
      // Where rows go to experts, gates stay where the tokens are.
      const bool harmless = expert > 1 && bug == Bug::gates_before_ways_sum;
      EXPECT_EQ(unlike_one_rank(plan, 4, clipped) == "", harmless) << int(bug) << ", " << expert;
    }
  }
}

// Two steps in one cut, then two in the next, at another stage, and so on around.
TEST(ExpertTensor, CheckpointsGoOnInAnyOtherCut) {
  struct World {
    int ranks, tensor, expert;
  };
  const World worlds[] = {{4, 2, 1}, {4, 1, 2}, {8, 2, 2}, {4, 4, 1}, {8, 4, 2}, {1, 1, 1}, {8, 2, 4}};
  const auto disks = std::make_shared<sim::Disks>();
  const auto plan_of = [](const World& world, int stage) {
    TrainPlan plan = slabs_plan(world.tensor, world.expert);
    plan.checkpoint = saving_plan(stage).checkpoint;
    plan.layout.zero = zero_plan(stage);
    plan.layout.zero.persistence_threshold_elements = 20;
    return plan;
  };
  int steps = 0;
  for (const World& world : worlds) {
    TrainPlan plan = plan_of(world, steps / 2 % 4);
    plan.checkpoint.resume = steps > 0;
    plan.definition.steps = steps += 2;
    const SavingRun run = run_saving(plan, world_of(world.ranks), disks);
    TrainPlan alone = undivided(plan);
    alone.checkpoint = {};
    const StateDigest want = run_alone(alone).outcome.state;
    if (steps > 2) {
      ASSERT_FALSE(run.observer.rolled_back_to.empty()) << steps;
      EXPECT_EQ(run.observer.rolled_back_to.front(), steps - 2);
    }
    for (const auto& outcome : run.outcomes) {
      ASSERT_TRUE(outcome && outcome->ending == Ending::finished) << outcome->why;
      EXPECT_EQ(outcome->state, want) << steps << ", " << world.tensor << " ways, groups of " << world.expert;
    }
  }
}

// Each way has its part of every expert, and the router whole.
TEST(ExpertTensor, WaysShareTheExpertsMemory) {
  const auto bytes = [](int tensor, int expert) {
    return run_simulated(slabs_plan(tensor, expert), world_of(8))
        .world.memory_peak_by_tag[std::size_t(MemoryTag::optimizer)];
  };
  EXPECT_LT(bytes(4, 1), bytes(2, 1));
  EXPECT_LT(bytes(2, 2), bytes(2, 1));
  EXPECT_LT(bytes(2, 4), bytes(2, 2));
}

}  // namespace
}  // namespace seeksim::test
