// DeepSeek's layers in scenarios: what is filled in and refused, what a model says of itself, and planted mistakes.
#include <nlohmann/json.hpp>

#include "harness/export/hugging_face_config.h"
#include "harness/loading/estimate.h"
#include "harness/loading/load.h"
#include "harness/run/run.h"
#include "runtime/layout/parameters.h"
#include "tests/support/scenarios.h"

namespace seeksim::harness {
namespace {

using namespace testing;

Scenario deepseek(const std::vector<std::string>& sets = {}) {
  LoadOptions options;
  options.sets = {"model.family=llama", "model.layers=3",       "model.ffn=12",           "model.experts=4",
                  "model.gate=sigmoid", "model.gate_scale=2.5", "model.shared_experts=1", "model.dense_layers=1"};
  options.sets.insert(options.sets.end(), sets.begin(), sets.end());
  return load_scenario_text(small_text(), "s.json", options);
}

std::string deepseek_refusal(const std::vector<std::string>& sets) {
  try {
    deepseek(sets);
  } catch (const BadInput& bad) {
    std::string all;
    for (const Problem& problem : bad.problems()) all += problem.path + ": " + problem.what + "\n";
    return all;
  }
  return "";
}

// As in DeepSeek-V2 and V3: 12,288 = 8 * 1,536 and 18,432 = 9 * 2,048.
TEST(DeepSeek, ADenseLayerIsAsWideAsATokensExperts) {
  EXPECT_EQ(deepseek().train.definition.model.dense_hidden(), 3 * 12);
  EXPECT_EQ(deepseek({"model.shared_experts=2"}).train.definition.model.dense_hidden(), 4 * 12);
  EXPECT_EQ(deepseek({"model.dense_ffn=20"}).train.definition.model.dense_hidden(), 20);
}

TEST(DeepSeek, IsWrittenBack) {
  const Scenario given = deepseek({"model.dense_ffn=20", "model.z_loss=0.001"});
  const Scenario back = load_scenario_text(to_json(given).dump(), "s.json");
  EXPECT_EQ(to_json(back), to_json(given));
  EXPECT_EQ(back.train.definition.model.experts, given.train.definition.model.experts);
  EXPECT_FALSE(to_json(deepseek({"model.dense_layers=0"}))["model"].contains("dense_ffn"));
}

TEST(DeepSeek, ParametersAreEstimatedAsTheyAre) {
  for (const char* const also : {"model.dense_layers=1", "model.dense_layers=2", "model.shared_experts=3",
                                 "model.dense_ffn=21", "model.gate=softmax"}) {
    const Scenario s = deepseek({"model.tied=true", also});
    EXPECT_EQ(estimate(s).parameters, double(runtime::Parameters(s.train.definition.model, false).size())) << also;
  }
}

TEST(DeepSeek, WhatDoesNotFitIsRefusedByItsKey) {
  for (const auto& [sets, key] : std::vector<std::pair<std::vector<std::string>, std::string>>{
           {{"model.dense_layers=3"}, "model.dense_layers"},
           {{"model.dense_layers=0", "model.dense_ffn=20"}, "model.dense_ffn"},
           {{"model.gate_scale=0"}, "model.gate_scale"},
           {{"model.gate=tanh"}, "model.gate"},
           {{"model.shared_experts=65"}, "model.shared_experts"},
           {{"model.experts=0"}, "model.gate"},
           {{"model.experts=0"}, "model.shared_experts"},
           {{"model.experts=0"}, "model.dense_layers"},
           {{"world.pipeline=2", "world.schedule=zero_bubble"}, "world.schedule"},
           {{"model.frozen=[\"*.block_sparse_moe.gate.weight\"]"}, "model.frozen.0"}}) {
    EXPECT_NE(deepseek_refusal(sets).find(key + ": "), std::string::npos) << sets.back() << "\n"
                                                                          << deepseek_refusal(sets);
  }
}

// GLM-4.5's architecture is DeepSeek-V3's experts with Llama's attention, where it leaves its own additions out.
TEST(DeepSeek, ItsConfigIsOneThatTransformersKnows) {
  const Json config = hugging_face_config(deepseek().train.definition.model, "float32");
  EXPECT_EQ(config["model_type"], "glm4_moe");
  EXPECT_EQ(config["moe_intermediate_size"], 12);
  EXPECT_EQ(config["intermediate_size"], 36);
  EXPECT_EQ(config["first_k_dense_replace"], 1);
  EXPECT_EQ(config["n_shared_experts"], 1);
  EXPECT_EQ(config["routed_scaling_factor"], 2.5);
  EXPECT_FALSE(config.contains("num_local_experts"));
  EXPECT_EQ(hugging_face_config(deepseek({"model.gate=softmax"}).train.definition.model, "float32")["model_type"],
            "deepseek");
}

std::string red_checks(const std::vector<std::string>& sets) {
  const Outcome outcome = run_scenario(deepseek(sets), {}, [](std::string_view) {});
  std::string names;
  for (const Json& check : outcome.report["checks"]) {
    if (!check["ok"].get<bool>()) names += check["name"].get<std::string>() + ' ';
  }
  return names;
}

// Also where experts are divided: shared experts and dense layers are on every rank.
TEST(DeepSeek, MistakesAreSeenByTheGolden) {
  for (const char* const world : {"world.expert=1", "world.expert=2"}) {
    const auto with = [&](const std::string& bug) {
      return red_checks({world, "steps=2", "faults=[]", "bug=\"" + bug + "\"",
                         R"(checks=["golden:bitwise","ranks_agree","memory_formula","traffic_formula"])"});
    };
    EXPECT_EQ(with(""), "") << world;
    for (const char* const bug :
         {"sigmoid_gates_undivided", "gates_scaled_twice", "shared_expert_scaled", "shared_gradient_lost"})
      EXPECT_EQ(with(bug), "golden:bitwise ") << world << " " << bug;
  }
}

// And where tensor ways have slabs of the shared expert and of dense layers, with all rows or their own between them.
TEST(DeepSeek, TensorWaysHaveTheBitsOfOneRank) {
  for (const char* const own_rows : {"world.sequence_parallel=false", "world.sequence_parallel=true"}) {
    const auto with = [&](const std::string& bug) {
      return red_checks({R"(world={"nodes":1,"replicas":2,"tensor":2})", own_rows, "model.expert_sums=slabs",
                         "model.heads=8", "model.width=32", "model.ffn=16", "steps=2", "faults=[]",
                         "bug=\"" + bug + "\"", R"(checks=["golden:bitwise","ranks_agree"])"});
    };
    EXPECT_EQ(with(""), "") << own_rows;
    for (const char* const bug : {"shared_expert_scaled", "shared_gradient_lost"})
      EXPECT_EQ(with(bug).find("golden:bitwise "), 0u) << own_rows << " " << bug << ": " << with(bug);
  }
}

}  // namespace
}  // namespace seeksim::harness
