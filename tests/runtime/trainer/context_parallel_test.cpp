// Ranks that share the tokens of each sample: the bits of one rank, whatever the cut; mistakes that are seen; and what
// a rank has no need to hold.
#include <gtest/gtest.h>

#include "runtime/rules/bugs.h"
#include "tests/support/simulated_training.h"

namespace seeksim::test {
namespace {

TrainPlan of_context(int ranks, bool zigzag = false, bool llama = false) {
  TrainPlan plan = tiny_plan();
  ModelPlan& m = plan.definition.model;
  m.layers = 2, m.heads = 8, m.width = 32, m.context = 24;
  m.segmented_gradients = true;
  if (llama) m.family = "llama", m.tied = false, m.kv_heads = 8, m.heads = 16, m.width = 64, m.ffn = 12;
  plan.definition.global_batch = 5;
  plan.layout.parallel.context = ranks;
  plan.layout.parallel.context_zigzag = zigzag;
  return plan;
}

struct ContextCase {
  int ranks, context;
  bool zigzag;
};
constexpr ContextCase kContextCases[] = {{2, 2, false}, {4, 2, true},  {4, 4, false},
                                         {4, 4, true},  {6, 2, false}, {8, 8, false}};

std::string context_case(const ContextCase& cut, int stage, int micro) {
  return std::to_string(cut.ranks) + " ranks, groups of " + std::to_string(cut.context) +
         (cut.zigzag ? ", zigzag" : "") + ", stage " + std::to_string(stage) + ", micro-batches of " +
         std::to_string(micro);
}

TEST(ContextParallel, BitsAreThoseOfOneRankInEveryCut) {
  for (const bool llama : {false, true}) {
    for (const ElementType type : {ElementType::f32, ElementType::bf16, ElementType::f16}) {
      TrainPlan one = of_context(1, false, llama);
      one.definition.precision.compute = type;
      const Trained golden = run_alone(undivided(one));
      for (const ContextCase& cut : kContextCases) {
        for (const int stage : {0, 1, 2, 3}) {
          const int micro = stage % 2 == 0 ? 1 : 3;
          TrainPlan plan = of_context(cut.context, cut.zigzag, llama);
          plan.definition.precision.compute = type;
          plan.layout.zero.stage = stage;
          plan.layout.micro_batch = micro;
          EXPECT_EQ(unlike_one_rank(plan, cut.ranks, golden), "")
              << context_case(cut, stage, micro) << ", type " << int(type) << (llama ? ", llama" : "");
        }
      }
    }
  }
}

TEST(ContextParallel, DropoutAndWhatIsComputedAgainGoByTheSamplesTokens) {
  for (const bool fused : {false, true}) {
    TrainPlan plan = of_context(4, true);
    plan.definition.model.dropout = {0.1, 0.2, 0.3};
    plan.definition.model.fused_attention = fused;
    const Trained golden = run_alone(undivided(plan));
    for (const int every : {0, 1, 2}) {
      plan.layout.checkpointing.every = every;
      EXPECT_EQ(unlike_one_rank(plan, 4, golden), "") << every << (fused ? ", fused" : "");
    }
  }
}

TEST(ContextParallel, AScaleOfTheLogitsIsSummedOverAllTokens) {
  TrainPlan plan = of_context(2);
  plan.definition.model.logit_scale = true;
  const Trained golden = run_alone(undivided(plan));
  EXPECT_EQ(unlike_one_rank(plan, 4, golden), "");
}

// Of a batch of 1 the second group has no sample.
TEST(ContextParallel, AGroupWithoutSamplesTakesPart) {
  TrainPlan plan = of_context(2);
  plan.definition.global_batch = 1;
  const Trained golden = run_alone(undivided(plan));
  for (const int stage : {0, 1, 2, 3}) {
    plan.layout.zero.stage = stage;
    EXPECT_EQ(unlike_one_rank(plan, 4, golden), "") << stage;
  }
}

// Segments are another order of sums: the bits are others than those of one chain, and near them.
TEST(ContextParallel, SegmentsAreAnotherOrderThanOneChain) {
  TrainPlan chain = undivided(of_context(1));
  chain.definition.model.segmented_gradients = false;
  const Trained segments = run_alone(undivided(of_context(1))), tokens = run_alone(chain);
  EXPECT_EQ(segments.observer.steps.at(0)[0].loss, tokens.observer.steps.at(0)[0].loss) << "forward is the same";
  EXPECT_FALSE(segments.outcome.state == tokens.outcome.state);
  const double one = segments.observer.steps.at(0)[0].grad_norm, other = tokens.observer.steps.at(0)[0].grad_norm;
  EXPECT_NEAR(one, other, 1e-5 * other);
}

TEST(ContextParallel, MistakesAreSeen) {
  for (const bool llama : {false, true}) {
    TrainPlan right = of_context(2, true, llama);
    right.definition.model.dropout.residual = 0.2;
    const Trained golden = run_alone(undivided(right));
    for (const Bug bug :
         {Bug::none, Bug::context_positions_of_chunk, Bug::context_rows_by_rank, Bug::context_heads_of_another,
          Bug::context_gradients_of_own_tokens, Bug::context_gradients_averaged, Bug::context_loss_of_own_tokens,
          Bug::context_dropout_of_chunk}) {
      for (const int stage : {0, 3}) {
        TrainPlan plan = right;
        plan.layout.zero.stage = stage;
        plan.bug = PlantedBug{bug};
        EXPECT_EQ(unlike_one_rank(plan, 4, golden) == "", bug == Bug::none) << int(bug) << ", stage " << stage;
      }
    }
  }
}

TEST(ContextParallel, ActivationsAreCutAmongTheRanks) {
  const auto bytes = [](int ranks) {
    TrainPlan plan = of_context(ranks);
    plan.layout.micro_batch = 1;
    return double(run_simulated(plan, world_of(8)).world.memory_peak_by_tag[std::size_t(MemoryTag::activations)]);
  };
  const double one = bytes(1), scale = 1.25;  // some are of all tokens
  EXPECT_LT(bytes(2), one / 2 * scale);
  EXPECT_LT(bytes(8), one / 8 * scale * 1.5);
}

}  // namespace
}  // namespace seeksim::test
