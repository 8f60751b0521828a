// A scalar parameter and frozen ones: the bits of one rank at every stage, and no gradient, optimizer state or change
// for what is frozen.
#include <gtest/gtest.h>

#include <algorithm>

#include "runtime/layout/parameters.h"
#include "runtime/layout/partition.h"
#include "tests/support/simulated_training.h"

namespace seeksim::test {
namespace {

// Each freezes something that another does not: the front of the space and a shared head, a whole layer, biases of
// norms whose weights are trained, weights whose biases are, the scalar itself.
const std::vector<std::vector<std::string>> kFrozen = {
    {"wte.weight"}, {"h.0.*"}, {"*.bias", "wpe.weight"}, {"*ln_1.weight", "ln_f.weight", "h.1.mlp.*"}, {"logit_scale"}};

TrainPlan awkward_plan(const std::vector<std::string>& frozen, bool tied = true) {
  TrainPlan plan = tiny_plan(true);
  plan.definition.model.layers = 2;
  plan.definition.model.tied = tied;
  plan.definition.model.logit_scale = true;
  plan.definition.model.frozen = frozen;
  plan.definition.optimizer.weight_decay = 0.1;
  plan.definition.optimizer.decay_all = true;  // what is frozen is not decayed even so
  return plan;
}

void expect_bits(const Simulated& run, const Trained& golden, const std::string& at) {
  ASSERT_EQ(run.world.end, sim::WorldEnd::finished) << at << "\n" << run.world.wait_for_graph;
  ASSERT_FALSE(run.finished().empty()) << at;
  for (const int r : run.finished()) {
    ASSERT_EQ(run.outcomes[std::size_t(r)]->state, golden.outcome.state) << at << ", rank " << r;
    const std::vector<StepRecord>&steps = run.observer.steps.at(r), &one = golden.observer.steps.at(0);
    ASSERT_EQ(steps.size(), one.size()) << at;
    for (std::size_t i = 0; i < steps.size(); ++i) {
      ASSERT_EQ(steps[i].loss, one[i].loss) << at << ", step " << i;
      ASSERT_EQ(steps[i].grad_norm, one[i].grad_norm) << at << ", step " << i;
    }
  }
}

std::map<std::string, std::vector<float>> by_name(const std::vector<NamedTensor>& tensors) {
  std::map<std::string, std::vector<float>> map;
  for (const NamedTensor& t : tensors) map[t.name] = t.values;
  return map;
}

class AwkwardParameters : public testing::TestWithParam<bool> {};

TEST_P(AwkwardParameters, BitsAreThoseOfOneRankAtEveryStageWorldAndBucket) {
  for (std::size_t i = 0; i < kFrozen.size(); ++i) {
    const std::vector<std::string>& frozen = kFrozen[i];
    TrainPlan plan = awkward_plan(frozen, GetParam());
    plan.definition.steps = 2;
    const Trained golden = run_alone(plan);
    for (const int stage : {0, 1, 2, 3}) {
      for (const int ranks : {1, 2, 3, 4, 8}) {
        for (const int bucket : {1, 1000000}) {
          const bool turn = (int(i) + stage + ranks + (bucket == 1)) % 2 == 0;
          if (i > 0 && (stage == 0 || !turn)) continue;  // the first of them sees every combination
          ZeroPlan zero = zero_plan(stage);
          zero.reduce_bucket_elements = zero.allgather_bucket_elements = bucket;
          zero.overlap_comm = ranks % 2 == 0;
          zero.persistence_threshold_elements = (ranks + bucket) % 2 ? 20 : 0;
          zero.max_reuse_distance = bucket == 1 ? 0 : zero.max_reuse_distance;
          plan.layout.zero = zero;
          const std::string at = frozen[0] + " frozen, stage " + std::to_string(stage) + ", " + std::to_string(ranks) +
                                 " ranks, buckets of " + std::to_string(bucket);
          const Simulated run = run_simulated(plan, world_of(ranks));
          ASSERT_EQ(int(run.finished().size()), ranks) << at;
          expect_bits(run, golden, at);
          if (testing::Test::HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST_P(AwkwardParameters, WhatIsFrozenNeverChangesAndTheRestHasTheSameGradients) {
  const Trained all = run_alone(awkward_plan({}, GetParam()), 0);
  const auto every = by_name(all.observer.kept_gradients.at(0));
  for (const std::vector<std::string>& frozen : kFrozen) {
    TrainPlan plan = awkward_plan(frozen, GetParam());
    const auto start = by_name(initial_weights(plan.definition));
    ASSERT_EQ(start, by_name(initial_weights(awkward_plan({}, GetParam()).definition)));
    const std::vector<std::string> names = frozen_names(plan.definition.model);
    ASSERT_FALSE(names.empty());
    for (const int stage : {0, 3}) {
      plan.layout.zero = zero_plan(stage);
      const Trained run = run_alone(plan, 0);
      const auto gradients = by_name(run.observer.kept_gradients.at(0));
      ASSERT_EQ(run.outcome.state.by_tensor.size(), start.size());
      for (const auto& [name, values] : by_name(run.weights)) {
        const bool is_frozen = std::find(names.begin(), names.end(), name) != names.end();
        ASSERT_EQ(values == start.at(name), is_frozen) << name << " at stage " << stage;
        ASSERT_EQ(gradients.count(name), is_frozen ? 0u : 1u) << name;
        if (!is_frozen) {
          ASSERT_EQ(gradients.at(name), every.at(name)) << name << " at stage " << stage;
        }
      }
    }
  }
}

TEST_P(AwkwardParameters, AnOwnersLossIsSurvivedAtEveryStage) {
  for (const std::vector<std::string>& frozen : {kFrozen[0], kFrozen[1]}) {
    TrainPlan plan = awkward_plan(frozen, GetParam());
    plan.recovery.watchdog_ns = 10 * kSecond;
    plan.recovery.agree_ns = kSecond;
    const Trained golden = run_alone(plan);
    for (const int stage : {1, 2, 3}) {
      plan.layout.zero = zero_plan(stage);
      plan.layout.zero.persistence_threshold_elements = 20;
      const TimeNs span = run_simulated(plan, world_of(4)).world.virtual_ns;
      int recovered = 0;
      for (int rank = 0; rank < 4; ++rank) {
        const Simulated run =
            run_simulated(plan, world_of(4), [&](sim::World& w) { w.kill_at(rank, span * (2 + rank % 2) / 4, [] {}); });
        const std::string at = "stage " + std::to_string(stage) + ", rank " + std::to_string(rank) + " killed";
        ASSERT_EQ(run.finished().size(), 3u) << at;
        expect_bits(run, golden, at);
        if (testing::Test::HasFatalFailure()) return;
        recovered += !run.observer.recovered_records.empty();
      }
      EXPECT_EQ(recovered, 4);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Head, AwkwardParameters, testing::Values(true, false),
                         [](const auto& head) { return head.param ? "tied" : "untied"; });

double peak(const Simulated& run, MemoryTag tag) { return double(run.world.memory_peak_by_tag[std::size_t(tag)]); }

TEST(FrozenParameters, CostNothingButThemselves) {
  constexpr double kBlockBytes = 4.0 * double(kernels::kBlock);
  TrainPlan plan = tiny_plan();
  plan.definition.model.width = 64;
  plan.definition.model.heads = 8;
  plan.definition.model.vocab = 256;
  plan.definition.model.layers = 2;
  plan.definition.model.frozen = {"wte.weight", "h.0.*"};
  plan.definition.global_batch = 8;
  const Parameters parameters(plan.definition.model, false);
  const double P = double(parameters.size()), trained = double(parameters.trainable_size());
  ASSERT_LT(trained, 0.7 * P);
  for (const int ranks : {1, 2, 4}) {
    for (const int stage : {0, 1, 2, 3}) {
      plan.layout.zero = zero_plan(stage);
      plan.layout.zero.persistence_threshold_elements = 0;
      plan.layout.zero.max_reuse_distance = 0;
      const Simulated run = run_simulated(plan, world_of(ranks));
      ASSERT_EQ(int(run.finished().size()), ranks);
      const std::string at = "stage " + std::to_string(stage) + ", " + std::to_string(ranks) + " ranks";
      const double N = ranks;
      EXPECT_NEAR(peak(run, MemoryTag::parameters), 4 * P / (stage == 3 ? N : 1), 2 * kBlockBytes) << at;
      EXPECT_NEAR(peak(run, MemoryTag::gradients), 4 * trained / (stage >= 2 ? N : 1), kBlockBytes) << at;
      EXPECT_NEAR(peak(run, MemoryTag::optimizer), 8 * trained / (stage >= 1 ? N : 1), 2 * kBlockBytes) << at;
      const double copied = 16 * trained + (stage == 3 ? 4 * (P - trained) : 0);
      EXPECT_NEAR(peak(run, MemoryTag::peer_copies), stage >= 1 && ranks > 1 ? copied / N : 0, 5 * kBlockBytes) << at;
    }
  }
}

TEST(FrozenParameters, PatternsNameThem) {
  EXPECT_TRUE(matches("h.0.*", "h.0.ln_1.weight"));
  EXPECT_TRUE(matches("*.bias", "h.0.mlp.c_fc.bias"));
  EXPECT_TRUE(matches("h.*.mlp.*.bias", "h.11.mlp.c_fc.bias"));
  EXPECT_TRUE(matches("*", ""));
  EXPECT_TRUE(matches("wte.weight*", "wte.weight"));
  EXPECT_FALSE(matches("h.1.*", "h.11.ln_1.weight"));
  EXPECT_FALSE(matches("wte", "wte.weight"));
  EXPECT_FALSE(matches("*.weight", "wte.weights"));
  EXPECT_FALSE(matches("", "wte.weight"));
}

TEST(FrozenParameters, LieBehindTheOthersAndKeepTheirNumbers) {
  ModelPlan model;
  model.frozen = {"wte.weight", "h.1.*"};
  model.logit_scale = true;
  const Parameters parameters(model, false);
  EXPECT_STREQ(parameters.all()[0].name, "wte.weight");
  EXPECT_STREQ(parameters.all().back().name, "logit_scale");
  EXPECT_EQ(parameters.frozen().size(), 13u);
  EXPECT_EQ(parameters.wte().offset, parameters.trainable_size());
  EXPECT_EQ(parameters.logit_scale()->offset, parameters.trainable_size() - 1);
  EXPECT_EQ(parameters.gradient_size(), parameters.trainable_size() + 1) << "a frozen wte has no head's share";
  for (const int members : {1, 3, 8}) {
    const Partition partition(parameters, members);
    Index trained = 0, frozen = parameters.trainable_size();
    for (int m = 0; m < members; ++m) {
      EXPECT_EQ(partition.shard(m).offset, trained);
      EXPECT_EQ(partition.frozen(m).offset, frozen);
      trained += partition.shard(m).size;
      frozen += partition.frozen(m).size;
      for (const ParameterPiece& piece : partition.pieces(partition.shard(m))) EXPECT_FALSE(piece.parameter->frozen);
      for (const ParameterPiece& piece : partition.pieces(partition.frozen(m))) EXPECT_TRUE(piece.parameter->frozen);
    }
    EXPECT_EQ(trained, parameters.trainable_size());
    EXPECT_EQ(frozen, parameters.size());
  }
}

}  // namespace
}  // namespace seeksim::test
