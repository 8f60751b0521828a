// DeepSeek's layers of experts: many ranks give the bits of one, with shared experts and dense layers beside experts
// that are divided or not; and mistakes that are seen.
#include <gtest/gtest.h>

#include "runtime/rules/bugs.h"
#include "tests/support/simulated_training.h"

namespace seeksim::test {
namespace {

TrainPlan deepseek_plan() {
  TrainPlan plan = tiny_plan();
  ModelPlan& m = plan.definition.model;
  m.family = "llama", m.tied = false;
  m.layers = 3, m.kv_heads = 1, m.ffn = 12;
  m.experts = {.count = 4, .per_token = 2, .capacity_factor = 1, .normalized = true, .balance = 0.1, .z = 0.01};
  m.experts.sigmoid = true, m.experts.scale = 2.5;
  m.experts.shared = 2, m.experts.dense_layers = 1, m.experts.dense_ffn = 9;
  plan.definition.global_batch = 7;
  return plan;
}

TEST(DeepSeekTraining, BitsAreThoseOfOneRankInEveryStageAndCut) {
  for (const ElementType type : {ElementType::f32, ElementType::bf16, ElementType::f16}) {
    TrainPlan plan = deepseek_plan();
    plan.definition.precision.compute = type;
    const Trained golden = run_alone(plan);
    for (const int stage : {0, 1, 2, 3}) {
      for (const auto& [ranks, expert] : {std::pair{3, 1}, {2, 2}, {4, 2}}) {
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

// Segments with layers of both kinds, and with one.
TEST(DeepSeekTraining, ActivationsComputedAgainSendTokensWhereTheyWent) {
  for (const int expert : {1, 2}) {
    for (const int dense : {0, 1, 2}) {
      TrainPlan plan = deepseek_plan();
      plan.definition.model.dropout.residual = 0.2;
      plan.definition.model.experts.dense_layers = dense;
      const Trained golden = run_alone(plan);
      plan.layout.parallel.expert = expert;
      for (const int every : {1, 2, 3}) {
        plan.layout.checkpointing.every = every;
        EXPECT_EQ(unlike_one_rank(plan, 4, golden), "") << expert << dense << every;
      }
    }
  }
}

// Each word of the family is another training.
TEST(DeepSeekTraining, EachWordDecidesBits) {
  const Trained all = run_alone(deepseek_plan());
  const auto without = [&](const auto& change) {
    TrainPlan plan = deepseek_plan();
    change(plan.definition.model.experts);
    return unlike_one_rank(plan, 2, all);
  };
  EXPECT_EQ(without([](ExpertsPlan&) {}), "");
  EXPECT_NE(without([](ExpertsPlan& x) { x.sigmoid = false; }), "");
  EXPECT_NE(without([](ExpertsPlan& x) { x.scale = 1; }), "");
  EXPECT_NE(without([](ExpertsPlan& x) { x.balance = 0; }), "");
  EXPECT_NE(without([](ExpertsPlan& x) { x.z = 0; }), "");
  EXPECT_NE(without([](ExpertsPlan& x) { x.normalized = false; }), "");
}

TEST(DeepSeekTraining, MistakesAreSeen) {
  const Trained golden = run_alone(deepseek_plan());
  for (const Bug bug :
       {Bug::sigmoid_gates_undivided, Bug::gates_scaled_twice, Bug::shared_expert_scaled, Bug::shared_gradient_lost}) {
    TrainPlan plan = deepseek_plan();
    plan.bug = PlantedBug{bug};
    EXPECT_NE(unlike_one_rank(plan, 2, golden), "") << int(bug);
  }
}

}  // namespace
}  // namespace seeksim::test
