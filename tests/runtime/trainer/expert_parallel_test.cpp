// Experts that are divided among the ranks of a group: the bits of one rank, whatever the cut; and mistakes that are
// seen.
#include <gtest/gtest.h>

#include "runtime/rules/bugs.h"
#include "tests/support/simulated_training.h"

namespace seeksim::test {
namespace {

TrainPlan divided_experts(int expert) {
  TrainPlan plan = tiny_plan();
  ModelPlan& m = plan.definition.model;
  m.family = "llama", m.tied = false;
  m.layers = 2, m.kv_heads = 1, m.ffn = 12;
  m.experts = {.count = 4, .per_token = 2, .capacity_factor = 1, .normalized = true, .balance = 0.1, .z = 0.01};
  plan.definition.global_batch = 7;
  plan.layout.parallel.expert = expert;
  return plan;
}

TEST(ExpertParallel, BitsAreThoseOfOneRankInEveryCut) {
  for (const ElementType type : {ElementType::f32, ElementType::bf16, ElementType::f16}) {
    TrainPlan plan = divided_experts(1);
    plan.definition.precision.compute = type;
    const Trained golden = run_alone(undivided(plan));
    for (const int stage : {0, 1, 2, 3}) {
      for (const auto& [ranks, expert] : {std::pair{2, 2}, {4, 2}, {4, 4}, {6, 2}, {8, 4}}) {
        for (const int micro : {1, 3}) {
          plan.layout.zero.stage = stage;
          plan.layout.micro_batch = micro;
          plan.layout.parallel.expert = expert;
          EXPECT_EQ(unlike_one_rank(plan, ranks, golden), "")
              << int(type) << ", stage " << stage << ", " << ranks << " ranks, groups of " << expert
              << ", micro-batches of " << micro;
        }
      }
    }
  }
}

TEST(ExpertParallel, ActivationsComputedAgainSendTokensWhereTheyWent) {
  TrainPlan plan = divided_experts(2);
  plan.definition.model.dropout.residual = 0.2;
  const Trained golden = run_alone(undivided(plan));
  for (const int every : {1, 2}) {
    plan.layout.checkpointing.every = every;
    EXPECT_EQ(unlike_one_rank(plan, 4, golden), "") << every;
  }
}

// Of a batch of 3 the fourth rank has none: it works for the others' tokens all the same.
TEST(ExpertParallel, ARankWithoutSamplesWorksForItsGroup) {
  TrainPlan plan = divided_experts(2);
  plan.definition.global_batch = 3;
  const Trained golden = run_alone(undivided(plan));
  for (const int stage : {0, 1, 2, 3}) {
    plan.layout.zero.stage = stage;
    plan.layout.micro_batch = 1;
    EXPECT_EQ(unlike_one_rank(plan, 4, golden), "") << stage;
    EXPECT_EQ(unlike_one_rank(plan, 8, golden), "") << stage;
  }
}

TEST(ExpertParallel, MistakesAreSeen) {
  const Trained golden = run_alone(undivided(divided_experts(2)));
  for (const Bug bug : {Bug::experts_divided_by_group, Bug::experts_of_own_samples, Bug::combined_in_anothers_order,
                        Bug::experts_scattered_over_all}) {
    for (const int stage : {0, 1, 2, 3}) {
      TrainPlan plan = divided_experts(2);
      plan.layout.zero.stage = stage;
      plan.bug = PlantedBug{bug};
      const bool harmless = bug == Bug::experts_scattered_over_all && stage < 2;
      EXPECT_EQ(unlike_one_rank(plan, 4, golden) == "", harmless) << int(bug) << ", stage " << stage;
    }
  }
}

TEST(ExpertParallel, ExpertsAreNowhereTwiceInAGroup) {
  const auto bytes = [](int expert) {
    return run_simulated(divided_experts(expert), world_of(4))
        .world.memory_peak_by_tag[std::size_t(MemoryTag::optimizer)];
  };
  EXPECT_LT(bytes(4), bytes(2));
  EXPECT_LT(bytes(2), bytes(1));
}

// The ranks with the same experts cut what they have among them: two groups, half of it each.
TEST(ExpertParallel, StagesCutAmongTheRanksWithTheSameExperts) {
  const auto bytes = [](int stage, MemoryTag tag) {
    TrainPlan plan = divided_experts(2);
    plan.layout.zero.stage = stage;
    plan.layout.zero.persistence_threshold_elements = 0;
    plan.recovery.peer_copies = 0;
    return double(run_simulated(plan, world_of(4)).world.memory_peak_by_tag[std::size_t(tag)]);
  };
  const double block = sizeof(float) * double(kernels::kBlock);
  EXPECT_NEAR(bytes(1, MemoryTag::optimizer), bytes(0, MemoryTag::optimizer) / 2, 2 * block);
  EXPECT_NEAR(bytes(2, MemoryTag::gradients), bytes(1, MemoryTag::gradients) / 2, 2 * block);
  EXPECT_NEAR(bytes(3, MemoryTag::parameters), bytes(2, MemoryTag::parameters) / 2, block);
}

}  // namespace
}  // namespace seeksim::test
