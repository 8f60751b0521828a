// Random models, worlds, stages, batches, buckets and reuse: the bits are always those of one rank. And the cuts
// themselves, by themselves: shards are disjoint, whole, and begin where the norm's blocks do.
#include <gtest/gtest.h>

#include "kernels/random.h"
#include "runtime/files/safetensors.h"
#include "runtime/zero/gradient_reducer.h"
#include "tests/support/simulated_training.h"

namespace seeksim::test {
namespace {

class Dice {
 public:
  explicit Dice(std::uint64_t seed) : seed_(seed) {}
  int below(int n) { return int(kernels::philox({at_++, 0, 0, 0}, seed_)[0] % std::uint32_t(n)); }
  bool coin() { return below(2) == 0; }
  // Small numbers as often as large ones.
  int magnitude(int bits) { return 1 + below(1 << below(bits)); }

 private:
  std::uint64_t seed_;
  std::uint32_t at_ = 0;
};

ModelPlan random_model(Dice& dice) {
  ModelPlan m;
  m.layers = dice.below(3);
  m.heads = 1 + dice.below(3);
  m.width = m.heads * (1 + dice.below(9));
  m.context = 1 + dice.below(12);
  m.vocab = 2 + dice.below(300);
  m.tied = dice.coin();
  if (dice.coin()) m.dropout = {0.1 * dice.below(5), 0.1 * dice.below(5), 0.1 * dice.below(5)};
  return m;
}

ZeroPlan random_zero(Dice& dice) {
  ZeroPlan zero = zero_plan(1 + dice.below(3));
  zero.reduce_bucket_elements = dice.magnitude(18);
  zero.allgather_bucket_elements = 50 + dice.magnitude(16);
  zero.prefetch_elements = dice.magnitude(16);
  zero.persistence_threshold_elements = dice.magnitude(12) - 1;
  zero.max_live_parameters = dice.magnitude(18);
  zero.max_reuse_distance = dice.magnitude(18) - 1;
  zero.sub_group_elements = dice.magnitude(14);
  zero.overlap_comm = dice.coin();
  return zero;
}

TEST(ZeroProperty, RandomRunsHaveTheBitsOfOneRank) {
  for (std::uint64_t seed = 1; seed <= 500; ++seed) {
    Dice dice(seed);
    TrainPlan plan = tiny_plan();
    plan.definition.training_seed = seed;
    plan.definition.model = random_model(dice);
    plan.definition.global_batch = 1 + dice.below(17);
    plan.definition.steps = 2;
    plan.layout.micro_batch = 1 + dice.below(5);
    const Trained golden = run_alone(plan);
    plan.layout.zero = random_zero(dice);
    plan.layout.micro_batch = 1 + dice.below(5);
    sim::WorldPlan world = world_of(1 + dice.below(9), true, seed);
    if (world.ranks_per_node % 2 == 0 && dice.coin()) world.nodes = 2, world.ranks_per_node /= 2;
    const Simulated run = run_simulated(plan, world);
    const std::string where = "seed " + std::to_string(seed) + ", stage " + std::to_string(plan.layout.zero.stage) +
                              ", " + std::to_string(world.ranks()) + " ranks";
    ASSERT_EQ(int(run.finished().size()), world.ranks()) << where << "\n" << run.world.wait_for_graph;
    for (const auto& outcome : run.outcomes) ASSERT_EQ(outcome->state, golden.outcome.state) << where;
    for (const auto& [rank, steps] : run.observer.steps) {
      ASSERT_EQ(steps.back().loss, golden.observer.steps.at(0).back().loss) << where;
      ASSERT_EQ(steps.back().grad_norm, golden.observer.steps.at(0).back().grad_norm) << where;
    }
    ASSERT_TRUE(run.observer.recovering_records.empty()) << where;
  }
}

TEST(ZeroProperty, ANonFiniteGradientSkipsTheStepAtEveryStage) {
  TrainPlan plan = tiny_plan();
  std::vector<TensorBytes> weights;
  for (NamedTensor t : initial_weights(plan.definition)) {
    if (t.name == "ln_f.bias") t.values[3] = std::numeric_limits<float>::infinity();
    weights.push_back(to_bytes(t));
  }
  plan.definition.initial_weights = write_safetensors(weights);
  const Trained golden = run_alone(plan);
  for (const int stage : {1, 2, 3}) {
    plan.layout.zero = zero_plan(stage);
    plan.layout.zero.persistence_threshold_elements = 0;
    const Simulated run = run_simulated(plan, world_of(3));
    ASSERT_EQ(run.finished().size(), 3U);
    for (const auto& outcome : run.outcomes) EXPECT_EQ(outcome->state, golden.outcome.state) << "stage " << stage;
    EXPECT_TRUE(run.observer.steps.at(2).back().skipped);
  }
}

TEST(ZeroProperty, GivenWeightsReachTheirShards) {
  TrainPlan plan = tiny_plan();
  plan.definition.training_seed = 9;
  std::vector<TensorBytes> weights;
  for (const NamedTensor& t : initial_weights(plan.definition)) weights.push_back(to_bytes(t));
  plan.definition.training_seed = 1;
  plan.definition.initial_weights = write_safetensors(weights);
  const Trained golden = run_alone(plan);
  for (const int stage : {1, 2, 3}) {
    plan.layout.zero = zero_plan(stage);
    const Simulated run = run_simulated(plan, world_of(4));
    ASSERT_EQ(run.finished().size(), 4U);
    for (const auto& outcome : run.outcomes) EXPECT_EQ(outcome->state, golden.outcome.state) << "stage " << stage;
  }
}

// ---- the cuts -------------------------------------------------------------------------------------------------------

TEST(ZeroPartition, EveryElementHasOneOwnerAndBlocksAreNotCut) {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    Dice dice(seed);
    ModelPlan model = random_model(dice);
    model.width *= 1 + dice.below(4);
    const Parameters parameters(model, false);
    const Partition partition(parameters, 1 + dice.below(9));
    std::vector<int> owners(std::size_t(parameters.gradient_size()), 0);
    Index next = 0, blocks = 0;
    for (int member = 0; member < partition.members(); ++member) {
      const ShardInfo shard = partition.shard(member);
      ASSERT_EQ(shard.offset, next);
      next += shard.size;
      ASSERT_LE(std::abs(shard.size - parameters.size() / partition.members()), kernels::kBlock) << "seed " << seed;
      ASSERT_EQ(partition.norm_blocks_before(shard.offset), blocks) << "seed " << seed;
      for (const ParameterPiece& piece : partition.pieces(shard)) {
        const Index slab = piece.parameter->slab;
        const Index in_slab = piece.first % slab;
        ASSERT_TRUE(in_slab % kernels::kBlock == 0) << "seed " << seed;
        for (Index x = piece.first; x < piece.first + piece.size; ++blocks) {
          const Index slab_end = std::min((x / slab + 1) * slab, piece.parameter->size);
          x = std::min(x + kernels::kBlock, slab_end);
          ASSERT_LE(x, piece.first + piece.size) << "seed " << seed;
        }
      }
      Index own = 0;
      for (const OwnedRange& range : partition.owned(member, 0, parameters.gradient_size())) {
        ASSERT_EQ(range.own, own);
        own += range.size;
        for (Index i = 0; i < range.size; ++i) ++owners[std::size_t(range.offset + i)];
      }
      ASSERT_EQ(own, partition.own_size(member));
    }
    ASSERT_EQ(next, parameters.size());
    ASSERT_EQ(blocks, partition.norm_blocks());
    for (const int n : owners) ASSERT_EQ(n, 1) << "seed " << seed;
  }
}

TEST(ZeroPartition, BucketsTileTheGradientsFromTheirEnd) {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    Dice dice(seed);
    const Parameters parameters(random_model(dice), false);
    const Index limit = dice.magnitude(16);
    Index next = parameters.gradient_size();
    for (const Bucket& bucket : gradient_buckets(parameters, limit)) {
      ASSERT_EQ(bucket.hi, next);
      ASSERT_LT(bucket.lo, bucket.hi);
      next = bucket.lo;
    }
    ASSERT_EQ(next, 0);
  }
}

TEST(ZeroPartition, StepCutsGiveEverySampleToOneMember) {
  for (std::uint64_t seed = 1; seed <= 500; ++seed) {
    Dice dice(seed);
    const StepCut cut{1 + dice.below(40), 1 + dice.below(9), 1 + dice.below(5), dice.coin()};
    Index next = 0;
    for (int k = 0; k < cut.count(); ++k) {
      ASSERT_EQ(cut.window(k).begin, next);
      for (int member = 0; member < cut.members; ++member) {
        const SampleRange samples = cut.samples(k, member);
        ASSERT_EQ(samples.begin, next);
        ASSERT_TRUE(!cut.interleaved || samples.size() <= cut.micro);
        next = samples.end;
      }
      ASSERT_EQ(cut.window(k).end, next);
    }
    ASSERT_EQ(next, cut.leaves);
  }
}

}  // namespace
}  // namespace seeksim::test
