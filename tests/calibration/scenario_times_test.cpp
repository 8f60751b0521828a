// The door: seeksim plan --platform, and what it says of a scenario.

#include "harness/calibration/scenario_times.h"

#include <gtest/gtest.h>

#include "harness/loading/load.h"

namespace seeksim::harness::calibration {
namespace {

constexpr const char* kLlama8b = R"({
  "name": "eight", "numerics": "shapes", "steps": 2, "data": {"synthetic": true},
  "model": {"family": "llama", "layers": 32, "width": 4096, "heads": 32, "kv_heads": 8, "ffn": 14336,
            "vocab": 128256, "context": 8192, "tied": false},
  "world": {"nodes": 2, "ranks_per_node": 8},
  "deepspeed": {"train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 4,
                "zero_optimization": {"stage": 3}},
  "recovery": {"policy": "stop"}})";

Scenario loaded(const std::vector<std::string>& sets = {}) {
  LoadOptions options;
  options.sets = sets;
  return load_scenario_text(kLlama8b, "eight.json", options);
}

ScenarioTimes times_of(const std::string& platform, const std::vector<std::string>& sets = {}) {
  return scenario_times(loaded(sets), platform_of(platform, "--platform"));
}

TEST(ScenarioTimes, TakeSizesAndLayoutFromTheScenario) {
  const ScenarioTimes times = times_of("h100");
  EXPECT_EQ(times.model.hidden, 14336);
  EXPECT_EQ(times.model.key_heads, 8);
  EXPECT_TRUE(times.model.gated);
  EXPECT_EQ(times.layout.gpus, 16);
  EXPECT_EQ(times.layout.batch, 64);
  EXPECT_EQ(times.layout.shards, Shards::parameters);
  EXPECT_EQ(times.platform.stack, Stack::eager);
  EXPECT_EQ(times_of("h100,stack=fused").platform.stack, Stack::fused);
  EXPECT_EQ(times_of("h100", {"deepspeed.zero_optimization.stage=1"}).platform.stack, Stack::plain);
  EXPECT_GT(times.mfu(), 0.3);
  EXPECT_LT(times.mfu(), 0.6);
}

TEST(ScenarioTimes, ThePartsAreTheWhole) {
  const nlohmann::ordered_json all = json(times_of("h100"));
  double parts = 0;
  for (const auto& part : all["parts_s"]) parts += part.get<double>();
  EXPECT_NEAR(parts, all["step_s"].get<double>(), 1e-9);
  ASSERT_EQ(all["collectives"].size(), 2u);
  EXPECT_EQ(all["collectives"][0]["collective"], "all_gather");
  EXPECT_EQ(all["collectives"][0]["ranks"], 16);
  EXPECT_EQ(all["collectives"][0]["nodes"], 2);
}

TEST(ScenarioTimes, RanksThatShareASampleHoldTheirPartOfIt) {
  const std::vector<std::string> two = {"world.context=2", "model.gradient_sums=segments",
                                        "deepspeed.gradient_accumulation_steps=8"};
  const ScenarioTimes shared = times_of("h100", two), whole = times_of("h100");
  EXPECT_EQ(shared.layout.context, 2);
  EXPECT_EQ(shared.layout.batch, whole.layout.batch);
  EXPECT_NEAR(shared.memory.activations, whole.memory.activations / 2, 1);
  EXPECT_NEAR(shared.memory.states, whole.memory.states, 1);
}

TEST(ScenarioTimes, TheLinesOfMemoryAreTheWhole) {
  const ScenarioTimes times = times_of("h100");
  double lines = 0, outside = 0;
  for (const MemoryLine& line : memory_lines(times)) {
    lines += line.bytes;
    if (std::string(line.name) == "CUDA and NCCL") outside = line.bytes;
  }
  EXPECT_NEAR(lines, times.memory.bytes() + outside, 1);
  EXPECT_LT(times_of("h100,stack=compiled").memory.activations, 0.7 * times.memory.activations);
  EXPECT_LT(times_of("h100,stack=compiled").memory.head, 0.4 * times.memory.head);
  EXPECT_LT(times_of("h100", {"checkpointing.every=1"}).memory.activations, 0.1 * times.memory.activations);
}

TEST(ScenarioTimes, ASlowerNetworkIsASlowerStep) {
  EXPECT_GT(times_of("a100,network=efa4").time.us(), 1.2 * times_of("a100,network=hdr8").time.us());
  EXPECT_GT(times_of("h100", {"checkpointing.every=1"}).time.us(), 1.2 * times_of("h100").time.us());
}

TEST(ScenarioTimes, ANodesGpusAreItsNvlinkDomain) {
  const std::vector<std::string> four = {"world.nodes=4", "world.ranks_per_node=4"};
  EXPECT_EQ(times_of("h100", four).platform.node, 4);
  EXPECT_EQ(times_of("h100,node=8", four).platform.node, 8);
  EXPECT_EQ(times_of("h100", four).collectives.at(0).group.nodes(), 4);
}

TEST(ScenarioTimes, AMeasuredCurveIsUsedAndNamed) {
  Platform platform = platform_of("h100", "--platform");
  platform.curves.push_back({Collective::all_gather, 16, 2, {{1e6, 1e3}, {1e9, 1e6}}});  // 1 GB/s
  const ScenarioTimes slow = scenario_times(loaded(), platform);
  EXPECT_GT(slow.time.us(), 3 * times_of("h100").time.us());
  EXPECT_NE(text(slow).find("measured"), std::string::npos) << text(slow);
  EXPECT_EQ(text(times_of("h100")).find("measured"), std::string::npos);
}

TEST(ScenarioTimes, WhatTheModelDoesNotKnowIsNamed) {
  EXPECT_EQ(unknown_part(loaded()), "");
  EXPECT_NE(unknown_part(loaded({"deepspeed.zero_optimization.offload_optimizer={\"device\":\"cpu\"}"})), "");
}

}  // namespace
}  // namespace seeksim::harness::calibration
