// Quantised gradients against an emulation that shares none of their code: with a learning rate of 0 the gradient of a
// group is what a plain run with the group as its batch has, and the algorithm is these few lines over plain vectors.
// Then what they cannot be together with.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "harness/input/problem.h"
#include "harness/loading/load.h"
#include "harness/simulate/simulate.h"
#include "runtime/model/weights.h"
#include "tests/support/scenarios.h"

namespace seeksim::harness {
namespace {

using namespace testing;
using Floats = std::vector<float>;
using ByStep = std::map<std::int64_t, Floats>;

constexpr int kGroups = 8, kGlobalBatch = 16, kTrained = 2;

struct Codes {
  int inner = 0, bits = 4, outer_bits = 8, block = 1024;
};
struct Ranks {
  int ranks = 1, stage = 3, micro = 2;
};

// Untied: of a tied embedding each use is quantised apart, and a run tells their sum only.
std::string text_of(int batch, int steps, const char* family, Ranks on, const std::string& quantised) {
  return fmt::format(
      R"({{ "name": "emulated",
  "model": {{ "family": "{}", "layers": 1, "width": 48, "heads": 4, "context": 8, "vocab": 61, "tied": false }},
  "data": {{ "synthetic": true }}, "world": {{ "nodes": 1, "ranks_per_node": {} }},
  "deepspeed": {{ "train_batch_size": {}, "train_micro_batch_size_per_gpu": {},
                 "zero_optimization": {{ "stage": {}, "zero_quantized_gradients": {} }},
                 "optimizer": {{ "type": "AdamW", "params": {{ "lr": 0, "weight_decay": 0 }} }} }},
  "batch_arithmetic": "by_samples", {} "steps": {} }})",
      family, on.ranks, batch, on.micro, on.stage, !quantised.empty(), quantised, steps);
}
std::string text_of(const char* family, Ranks on, Codes codes) {
  return text_of(kGlobalBatch, kTrained, family, on,
                 fmt::format(R"("quantized_gradients": {{ "groups": {}, "inner": {}, "bits": {}, "outer_bits": {},
                                "block": {} }},)",
                             kGroups, codes.inner, codes.bits, codes.outer_bits, codes.block));
}

// The reduced gradients of each step, in the order in which they are stored here.
ByStep gradients_of(const std::string& text) {
  const Scenario scenario = load_scenario_text(text, "emulated.json");
  const runtime::ModelPlan& model = scenario.train.definition.model;
  const runtime::Parameters parameters(model, false);
  Floats places(std::size_t(parameters.trainable_size()));
  for (std::size_t i = 0; i < places.size(); ++i) places[i] = float(i);
  const std::vector<runtime::NamedTensor> where = runtime::gradients_to_hugging_face(parameters, model, places);
  ByStep all;
  SimulationOptions options;
  options.on_gradients = [&](int rank, std::int64_t step, const std::vector<runtime::NamedTensor>& gradients) {
    if (rank != 0) return;
    Floats& flat = all[step];
    flat.resize(places.size());
    for (std::size_t t = 0; t < gradients.size(); ++t)
      for (std::size_t i = 0; i < gradients[t].values.size(); ++i)
        flat[std::size_t(where[t].values[i])] = gradients[t].values[i];
  };
  Simulation simulation(scenario, options);
  const RunRecord run = simulation.run();
  EXPECT_EQ(run.ranks[0].how, RankRecord::How::finished) << run.ranks[0].why;
  return all;
}

// ---- the algorithm -------------------------------------------------------------------------------------------------

// Rounds in place: blocks begin again with each slab of each parameter.
void round_all(const runtime::Parameters& parameters, int block, int bits, Floats& x) {
  const float most = bits == 4 ? 7.0F : 127.0F;
  for (const runtime::ParameterInfo& p : parameters.all()) {
    for (runtime::Index slab = 0; slab < p.size; slab += p.slab) {
      const runtime::Index end = std::min(slab + p.slab, p.size);
      for (runtime::Index at = slab; at < end; at += block) {
        float* const first = &x[std::size_t(p.offset + at)];
        const auto n = std::min<runtime::Index>(block, end - at);
        float largest = 0;
        for (runtime::Index i = 0; i < n; ++i) largest = std::max(largest, std::fabs(first[i]));
        const float scale = largest / most;
        for (runtime::Index i = 0; i < n && scale > 0; ++i) first[i] = std::nearbyint(first[i] / scale) * scale;
      }
    }
  }
}

// In pairs, older on the left; what has come together to `inner` groups is rounded once more.
Floats added_up(const runtime::Parameters& parameters, Codes codes, std::vector<Floats> parts) {
  for (std::size_t groups = 1; parts.size() > 1; groups *= 2) {
    if (codes.inner > 1 && groups == std::size_t(codes.inner))
      for (Floats& part : parts) round_all(parameters, codes.block, codes.outer_bits, part);
    std::vector<Floats> pairs;
    for (std::size_t i = 0; i < parts.size(); i += 2) {
      pairs.push_back(parts[i]);
      for (std::size_t e = 0; e < parts[i].size(); ++e) pairs.back()[e] = parts[i][e] + parts[i + 1][e];
    }
    parts = pairs;
  }
  if (codes.inner == kGroups) round_all(parameters, codes.block, codes.outer_bits, parts[0]);
  return parts[0];
}

ByStep emulated(const std::string& plain, Codes codes, const ByStep& groups) {
  const runtime::Parameters parameters(load_scenario_text(plain, "emulated.json").train.definition.model, false);
  ByStep sums;
  for (int step = 0; step < kTrained; ++step) {
    std::vector<Floats> parts;
    for (int group = 0; group < kGroups; ++group) {
      parts.push_back(groups.at(step * kGroups + group));
      for (float& x : parts.back()) x /= float(kGroups);
      round_all(parameters, codes.block, codes.bits, parts.back());
    }
    sums[step] = added_up(parameters, codes, std::move(parts));
  }
  return sums;
}

std::string plain_text(const char* family) {
  return text_of(kGlobalBatch / kGroups, kTrained * kGroups, family, {1, 3, kGlobalBatch / kGroups}, "");
}

TEST(QuantisedGradientsEmulation, EachStepIsWhatTheAlgorithmSaysOnAnyNumberOfRanks) {
  const Codes forms[] = {{0, 4, 8, 1024}, {0, 8, 8, 64}, {2, 4, 8, 128}, {4, 4, 4, 1024}, {8, 4, 8, 16}};
  const Ranks worlds[] = {{1, 2, 2}, {1, 3, 16}, {4, 3, 2}, {3, 2, 2}, {2, 3, 2}, {2, 2, 8}, {8, 3, 2}};
  for (const char* family : {"gpt2", "llama"}) {
    const std::string plain = plain_text(family);
    const ByStep groups = gradients_of(plain);
    for (const Codes& codes : forms) {
      const ByStep want = emulated(plain, codes, groups);
      for (const Ranks on : worlds) {
        const ByStep got = gradients_of(text_of(family, on, codes));
        ASSERT_EQ(got.size(), std::size_t(kTrained));
        for (int step = 0; step < kTrained; ++step)
          EXPECT_EQ(got.at(step), want.at(step)) << family << ", inner " << codes.inner << ", " << on.ranks
                                                 << " ranks, stage " << on.stage << ", step " << step;
      }
    }
  }
}

TEST(QuantisedGradientsEmulation, SeesOtherBitsBlocksAndSums) {
  const std::string plain = plain_text("gpt2");
  const ByStep groups = gradients_of(plain), right = emulated(plain, {2, 4, 8, 64}, groups);
  for (const Codes& other :
       {Codes{0, 4, 8, 64}, Codes{4, 4, 8, 64}, Codes{2, 8, 8, 64}, Codes{2, 4, 4, 64}, Codes{2, 4, 8, 32}})
    EXPECT_NE(emulated(plain, other, groups).at(0), right.at(0)) << other.inner << other.bits << other.outer_bits;
}

// ---- what travels --------------------------------------------------------------------------------------------------

double scattered(const std::string& text) {
  Simulation simulation(load_scenario_text(text, "emulated.json"), {});
  const RunRecord run = simulation.run();
  EXPECT_EQ(run.ranks[0].how, RankRecord::How::finished) << run.ranks[0].why;
  return double(run.traffic.comm[std::size_t(runtime::OpKind::reduce_scatter)].bytes_sent_per_rank_max);
}

// Of fp32's bytes an eighth and scales; blocks of vectors are short.
TEST(QuantisedGradients, GroupsSendAnEighthOfFp32) {
  const double plain = scattered(text_of(kGlobalBatch, kTrained, "gpt2", {4, 3, 2}, ""));
  const double share = scattered(text_of("gpt2", {4, 3, 2}, {})) / plain;
  EXPECT_GT(share, 0.125);
  EXPECT_LT(share, 0.15);
}

// Of two nodes of two ranks: half of a group to the neighbour, and a quarter of a sum of two to the other node's owner.
TEST(QuantisedGradients, SumsOfNeighboursSendLessToOtherNodes) {
  const double one_way = scattered(text_of("gpt2", {4, 3, 2}, {})),
               two_ways = scattered(text_of("gpt2", {4, 3, 2}, {2}));
  EXPECT_NEAR(two_ways / one_way, (0.5 * 4 + 0.25 * 8) / (0.75 * 4), 0.05);
}

// ---- what they cannot be together with ------------------------------------------------------------------------------

std::string problems_with(const std::vector<std::string>& more) {
  std::vector<std::string> sets = {
      "faults=[]", R"(checks=["golden:bitwise"])", R"(quantized_gradients={"groups":8})",
      R"(deepspeed.zero_optimization={"stage":3,"zero_quantized_gradients":true,"zero_hpz_partition_size":1})"};
  sets.insert(sets.end(), more.begin(), more.end());
  return problems_of(small_text(), sets);
}

TEST(QuantisedGradientsLoading, RefusesByName) {
  EXPECT_EQ(problems_with({"seed=1"}), "");
  EXPECT_EQ(problems_with({R"(quantized_gradients={"groups":8,"inner":2,"bits":8,"outer_bits":4,"block":1})"}), "");
  const std::pair<std::vector<std::string>, const char*> rows[] = {
      {{"quantized_gradients.groups=3"}, "8 samples a step in 3 groups: a group has to be a power of two of samples"},
      {{"quantized_gradients.groups=1"}, "a group has 8 samples and a micro-batch 1"},
      {{R"(quantized_gradients={"inner":2})"}, "the key \"groups\" is missing"},
      {{"quantized_gradients.inner=3"}, "sums of 3 of 8 groups"},
      {{"quantized_gradients.inner=16"}, "sums of 16 of 8 groups"},
      {{"quantized_gradients.bits=5"}, "codes of 5 bits"},
      {{"quantized_gradients.bits=2"}, "2 is out of range"},
      {{"quantized_gradients.block=96"}, "96 elements: a block has to be a power of two"},
      {{"deepspeed.zero_optimization.zero_quantized_nontrainable_weights=true"},
       "zero_quantized_nontrainable_weights: Not supported"},
      {{"model.family=llama", "model.experts=4"}, "quantised gradients with experts"},
      {{"world.shard_group=2"}, "quantised gradients with shard groups"},
      {{R"(quirks=["ds_old_default_clipping"])"}, "quantised gradients with quirks"},
      {{"numerics=fast", "checks=[]"}, "quantised gradients in a run of fast arithmetic"},
      {{"recovery.memory_ladder=true"}, "quantised gradients with the memory ladder"},
      {{"bug=gap_in_shards"}, "gap_in_shards ends a shard inside a block"},
      {{R"(checks=["conservation"])"}, "conservation counts samples by tags"},
  };
  for (const auto& [sets, message] : rows) {
    const std::string problems = problems_with(sets);
    EXPECT_NE(problems.find(message), std::string::npos) << sets.front() << ":\n" << problems;
  }
}

TEST(QuantisedGradientsLoading, NeedsTheNumberOfGroups) {
  const std::string problems =
      problems_of(small_text(), {"faults=[]", R"(checks=["golden:bitwise"])",
                                 R"(deepspeed.zero_optimization={"stage":3,"zero_quantized_gradients":true})"});
  EXPECT_NE(problems.find("needs the number of groups"), std::string::npos) << problems;
}

// As every key of stages 2 and 3: at another stage it does nothing, and a note says so.
TEST(QuantisedGradientsLoading, AtOtherStagesTheKeyHasNoEffect) {
  LoadOptions options;
  options.sets = {R"(quantized_gradients={"groups":4})",
                  R"(deepspeed.zero_optimization={"stage":1,"zero_quantized_gradients":true})"};
  const Scenario scenario = load_scenario_text(small_text(), "s.json", options);
  EXPECT_FALSE(scenario.train.definition.quantised_gradients.on());
  const auto says = [](const std::string& note) { return note.find("zero_quantized_gradients") != std::string::npos; };
  EXPECT_TRUE(std::any_of(scenario.notes.begin(), scenario.notes.end(), says));
}

}  // namespace
}  // namespace seeksim::harness
