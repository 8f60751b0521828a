// Models with experts: many ranks give the bits of one, whatever is counted by sample; and a router that nobody trains
// through its gates is another training.
#include <gtest/gtest.h>

#include "runtime/rules/bugs.h"
#include "tests/support/simulated_training.h"

namespace seeksim::test {
namespace {

TrainPlan experts_plan() {
  TrainPlan plan = tiny_plan();
  ModelPlan& m = plan.definition.model;
  m.family = "llama", m.tied = false;
  m.layers = 2, m.kv_heads = 1, m.ffn = 12;
  m.experts = {.count = 4, .per_token = 2, .capacity_factor = 1, .normalized = true, .balance = 0.1, .z = 0.01};
  plan.definition.global_batch = 7;
  return plan;
}

TEST(ExpertsTraining, BitsAreThoseOfOneRankInEveryStageAndCut) {
  for (const ElementType type : {ElementType::f32, ElementType::bf16, ElementType::f16}) {
    TrainPlan plan = experts_plan();
    plan.definition.precision.compute = type;
    const Trained golden = run_alone(plan);
    for (const int stage : {0, 1, 2, 3}) {
      for (const int ranks : {2, 3, 5}) {
        for (const int micro : {1, 3}) {
          plan.layout.zero.stage = stage;
          plan.layout.micro_batch = micro;
          EXPECT_EQ(unlike_one_rank(plan, ranks, golden), "")
              << int(type) << ", stage " << stage << ", " << ranks << " ranks, micro-batches of " << micro;
        }
      }
    }
  }
}

TEST(ExpertsTraining, ActivationsComputedAgainSendTokensWhereTheyWent) {
  TrainPlan plan = experts_plan();
  plan.definition.model.dropout.residual = 0.2;
  const Trained golden = run_alone(plan);
  plan.layout.checkpointing.every = 1;
  EXPECT_EQ(unlike_one_rank(plan, 3, golden), "");
}

// Of one sample a micro-batch is that sample.
TEST(ExpertsTraining, CountedOverAMicroBatchTheyAreAnotherRun) {
  for (const bool capacity : {true, false}) {
    TrainPlan plan = experts_plan();
    if (!capacity) plan.definition.model.experts.capacity_factor = 0;
    if (capacity) plan.definition.model.experts.balance = 0;
    plan.layout.micro_batch = 1;
    const Trained golden = run_alone(plan);
    plan.bug = PlantedBug{Bug::experts_count_micro_batch};
    EXPECT_EQ(unlike_one_rank(plan, 2, golden), "");
    plan.layout.micro_batch = 3;
    EXPECT_NE(unlike_one_rank(plan, 2, golden), "") << capacity;
  }
}

// Of three groups some ranks get one, and some none.
TEST(ExpertsTraining, CountedOverGroupsOfSamplesTheBitsAreThoseOfOneRankThatDoesSo) {
  TrainPlan plan = experts_plan();
  plan.definition.global_batch = 6;
  const Trained by_sample = run_alone(plan);
  plan.definition.model.experts.samples = 2;
  plan.layout.micro_batch = 6;
  const Trained golden = run_alone(plan);
  EXPECT_NE(unlike_one_rank(plan, 1, by_sample), "") << "groups decide bits";
  for (const int stage : {0, 1, 2, 3}) {
    for (const int ranks : {2, 3, 5}) {
      for (const int micro : {2, 4}) {
        plan.layout.zero.stage = stage;
        plan.layout.micro_batch = micro;
        EXPECT_EQ(unlike_one_rank(plan, ranks, golden), "")
            << "stage " << stage << ", " << ranks << " ranks, micro-batches of " << micro;
      }
    }
  }
}

TEST(ExpertsTraining, ARouterThatCountsAMicroBatchIsOneThatCountsGroupsOfThatSize) {
  TrainPlan plan = experts_plan();
  plan.definition.global_batch = 6;
  plan.layout.micro_batch = 3;
  plan.bug = PlantedBug{Bug::experts_count_micro_batch};
  const Trained counted = run_alone(plan);
  plan.bug = {};
  EXPECT_NE(unlike_one_rank(plan, 2, counted), "");
  plan.definition.model.experts.samples = 3;
  EXPECT_EQ(unlike_one_rank(plan, 2, counted), "");
}

TEST(ExpertsTraining, TheCapacityOfOneSampleForTwoIsSeen) {
  TrainPlan plan = experts_plan();
  plan.definition.global_batch = 6;
  plan.definition.model.experts.samples = 2;
  const Trained golden = run_alone(plan);
  plan.bug = PlantedBug{Bug::capacity_of_one_sample};
  EXPECT_NE(unlike_one_rank(plan, 2, golden), "");
}

TEST(ExpertsTraining, ARouterWithoutItsGradientOnOneRankIsSeen) {
  TrainPlan plan = experts_plan();
  const Trained golden = run_alone(plan);
  plan.bug = PlantedBug{Bug::router_gradient_lost};
  EXPECT_NE(unlike_one_rank(plan, 2, golden), "");
}

}  // namespace
}  // namespace seeksim::test
