// Context groups whose blocks of keys and values go around: the bits of one rank, in every cut; key heads that the
// ranks do not divide; mistakes that are seen; what takes time, and how much is held.
#include <gtest/gtest.h>

#include <algorithm>

#include "runtime/layout/parameters.h"
#include "runtime/rules/bugs.h"
#include "tests/support/simulated_training.h"

namespace seeksim::test {
namespace {

TrainPlan of_ring(int ranks, bool zigzag = false, bool llama = false) {
  TrainPlan plan = tiny_plan();
  ModelPlan& m = plan.definition.model;
  m.layers = 2, m.heads = 2, m.width = 8, m.context = ranks == 8 || (ranks == 4 && zigzag) ? 256 : 128;
  m.segmented_gradients = m.fused_attention = true;
  if (llama) m.family = "llama", m.tied = false, m.kv_heads = 1, m.heads = 3, m.width = 12, m.ffn = 12;
  plan.definition.global_batch = 3;
  plan.layout.parallel.context = ranks;
  plan.layout.parallel.context_zigzag = zigzag;
  plan.layout.parallel.ring_attention = ranks > 1;
  return plan;
}

struct RingCase {
  int ranks, context;
  bool zigzag;
};
constexpr RingCase kRingCases[] = {{2, 2, false}, {4, 2, true}, {4, 4, false}, {4, 4, true}, {8, 8, false}};

std::string ring_case(const RingCase& ring, int stage) {
  return std::to_string(ring.ranks) + " ranks, groups of " + std::to_string(ring.context) +
         (ring.zigzag ? ", zigzag" : "") + ", stage " + std::to_string(stage);
}

TEST(RingAttention, BitsAreThoseOfOneRankInEveryCut) {
  int stage = 0;
  for (const bool llama : {false, true}) {
    for (const ElementType type : {ElementType::f32, ElementType::bf16, ElementType::f16}) {
      for (const RingCase& ring : kRingCases) {
        TrainPlan plan = of_ring(ring.context, ring.zigzag, llama);
        plan.definition.precision.compute = type;
        const Trained golden = run_alone(undivided(plan));
        plan.layout.zero.stage = stage = (stage + 1) % 4;
        plan.layout.micro_batch = stage % 2 == 0 ? 1 : 2;
        EXPECT_EQ(unlike_one_rank(plan, ring.ranks, golden), "")
            << ring_case(ring, stage) << ", type " << int(type) << (llama ? ", llama" : "");
      }
    }
  }
}

TEST(RingAttention, DropoutAndWhatIsComputedAgainGoByTheSamplesTokens) {
  for (const bool zigzag : {false, true}) {
    TrainPlan plan = of_ring(4, zigzag);
    plan.definition.model.dropout = {0.1, 0.2, 0.3};
    const Trained golden = run_alone(undivided(plan));
    for (const int every : {0, 1, 2}) {
      plan.layout.checkpointing.every = every;
      EXPECT_EQ(unlike_one_rank(plan, 4, golden), "") << every;
    }
  }
}

// Ulysses cannot divide one key head among two ranks; and both are layouts of one definition.
TEST(RingAttention, HasTheBitsOfUlysses) {
  TrainPlan plan = of_ring(2);
  const Trained golden = run_alone(undivided(plan));
  plan.layout.parallel.ring_attention = false;
  EXPECT_EQ(unlike_one_rank(plan, 2, golden), "");
  TrainPlan grouped = of_ring(2, false, true);
  EXPECT_EQ(problem(grouped.definition.model, grouped.layout.parallel), "");
  grouped.layout.parallel.ring_attention = false;
  EXPECT_NE(problem(grouped.definition.model, grouped.layout.parallel), "");
}

TEST(RingAttention, ChunksThatAreNoNodesAreRefused) {
  TrainPlan plan = of_ring(2);
  const auto why = [&](int context, bool fused, bool zigzag) {
    plan.definition.model.context = context, plan.definition.model.fused_attention = fused;
    plan.layout.parallel.context_zigzag = zigzag;
    return problem(plan.definition.model, plan.layout.parallel);
  };
  EXPECT_EQ(why(64, true, false), "");
  EXPECT_EQ(why(1024, true, true), "");
  EXPECT_NE(why(64, false, false).find("standard attention"), std::string::npos);
  EXPECT_NE(why(64, true, true).find("a chunk of 16 tokens"), std::string::npos);
  EXPECT_NE(why(192, true, false).find("a chunk of 96 tokens"), std::string::npos);
  EXPECT_NE(why(80, true, false).find("a chunk of 40 tokens"), std::string::npos);
}

TEST(RingAttention, AGroupWithoutSamplesTakesPart) {
  TrainPlan plan = of_ring(2, true);
  plan.definition.global_batch = 1;
  const Trained golden = run_alone(undivided(plan));
  for (const int stage : {0, 1, 2, 3}) {
    plan.layout.zero.stage = stage;
    EXPECT_EQ(unlike_one_rank(plan, 4, golden), "") << stage;
  }
}

TEST(RingAttention, MistakesAreSeen) {
  for (const bool llama : {false, true}) {
    TrainPlan right = of_ring(4, true, llama);
    right.definition.model.dropout.attention = 0.2;
    const Trained golden = run_alone(undivided(right));
    for (const Bug bug :
         {Bug::none, Bug::ring_mask_by_rank, Bug::ring_last_hop_left_out, Bug::ring_joins_without_factors,
          Bug::ring_gradients_stay, Bug::ring_stale_block, Bug::ring_dropout_of_block, Bug::ring_sums_in_16_bits}) {
      TrainPlan plan = right;
      plan.bug = PlantedBug{bug};
      EXPECT_EQ(unlike_one_rank(plan, 4, golden) == "", bug == Bug::none) << int(bug);
    }
  }
}

// In one stretch, the last rank of a group attends to all blocks and the first to one; zig-zag, all to as many.
TEST(RingAttention, ZigzagTakesLessTimeThanOneStretch) {
  const auto seconds = [](bool zigzag) {
    TrainPlan plan = of_ring(4, zigzag);
    plan.definition.model.context = 512, plan.definition.model.layers = 1, plan.definition.steps = 1;
    sim::WorldPlan world = world_of(4);
    world.device.flops_per_ns = 1;  // so that attention is what takes time
    return double(run_simulated(plan, world).world.virtual_ns) * 1e-9;
  };
  EXPECT_LT(seconds(true), 0.8 * seconds(false));
}

// Messages are under way while a rank attends: not so the all-to-alls, for which attention waits.
TEST(RingAttention, HopsAreHiddenBehindAttention) {
  const auto hidden = [](bool ring) {
    TrainPlan plan = of_ring(2, true);
    plan.definition.model.context = 256, plan.definition.steps = 1;
    plan.layout.parallel.ring_attention = ring;
    sim::WorldPlan world = world_of(2);
    world.device.flops_per_ns = 1;
    return run_simulated(plan, world).world.overlap.share();
  };
  EXPECT_GT(hidden(true), hidden(false) + 0.05);
}

TEST(RingAttention, HoldsBlocksOfItsOwnSizeAndFewNodes) {
  const auto bytes = [](int ranks) {
    TrainPlan plan = of_ring(ranks);
    plan.definition.model.context = 512;
    plan.layout.micro_batch = 1;
    return double(run_simulated(plan, world_of(8)).world.memory_peak_by_tag[std::size_t(MemoryTag::activations)]);
  };
  const double one = bytes(1);
  EXPECT_LT(bytes(2), one / 2 * 2.2) << "narrow: states of (D + 2) floats a head and row weigh as much as a layer";
  EXPECT_LT(bytes(8), one / 8 * 2.2);
}

}  // namespace
}  // namespace seeksim::test
