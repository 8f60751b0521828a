// Pipelines in scenarios: what is refused, in which words, and that checks of pipelines can be red.

#include <gtest/gtest.h>

#include <fmt/format.h>

#include "harness/input/problem.h"
#include "harness/loading/load.h"
#include "harness/scenario/variants.h"
#include "harness/simulate/simulate.h"
#include "harness/verdict/checks.h"
#include "tests/support/scenarios.h"

namespace seeksim::harness {
namespace {

std::string scenario_text(const std::string& world, const std::string& zero = R"({ "stage": 0 })",
                          const std::string& more = "") {
  return fmt::format(
      R"({{ "name": "parallel",
  "model": {{ "family": "gpt2", "layers": 4, "width": 16, "heads": 2, "context": 8, "vocab": 64 }},
  "data": {{ "synthetic": true }},
  "world": {{ "nodes": 1, {} }},
  "deepspeed": {{ "train_batch_size": 8, "train_micro_batch_size_per_gpu": 1, "zero_optimization": {} }},
  "steps": 2, {} "checks": [] }})",
      world, zero, more);
}

std::string refusal_of(const std::string& text) {
  try {
    load_scenario_text(text, "parallel.json");
  } catch (const BadInput& bad) {
    std::string all;
    for (const Problem& problem : bad.problems()) all += problem.what + "; " + problem.next + '\n';
    return all;
  }
  return "";
}

TEST(Parallel, WhatCannotRunIsRefusedWithTheReason) {
  struct Row {
    const char *world, *zero, *more, *says;
  };
  const Row rows[] = {
      {R"("ranks_per_node": 3, "pipeline": 2)", R"({ "stage": 0 })", "",
       "the number of ranks, 3, must be a multiple of 2"},
      {R"("replicas": 1, "pipeline": 8)", R"({ "stage": 0 })", "", "4 layers do not make 8 pieces"},
      {R"("replicas": 1, "ranks_per_node": 2, "pipeline": 2)", R"({ "stage": 0 })", "", "both ranks_per_node and"},
      {R"("pipeline": 2)", R"({ "stage": 0 })", "", "the number of ranks is missing"},
      {R"("replicas": 1, "pipeline": 2, "virtual_stages": 2)", R"({ "stage": 0 })", "",
       "only the interleaved schedule"},
      {R"("replicas": 1, "pipeline": 2, "pipeline_layers": [1, 2])", R"({ "stage": 0 })", "",
       "the pieces have 3 layers, the model 4"},
      {R"("replicas": 1, "tensor": 4)", R"({ "stage": 0 })", "", "leaves the last rank without any"},
      {R"("replicas": 2, "pipeline": 2)", R"({ "stage": 2 })", R"("strict_deepspeed": true,)",
       "ZeRO-2 and ZeRO-3 are incompatible with pipeline parallelism"},
      {R"("replicas": 2, "pipeline": 2)", R"({ "stage": 1 })", R"("quirks": ["mean_of_rank_means"],)",
       "quirks together with"},
  };
  for (const Row& row : rows)
    EXPECT_NE(refusal_of(scenario_text(row.world, row.zero, row.more)).find(row.says), std::string::npos)
        << row.says << "\nis not in\n"
        << refusal_of(scenario_text(row.world, row.zero, row.more));
  EXPECT_EQ(refusal_of(scenario_text(R"("replicas": 2, "pipeline": 2)", R"({ "stage": 3 })")), "");
}

TEST(ShardGroups, WhatTheyDoNotGoWithIsRefusedWithTheReason) {
  constexpr const char *kFour = R"("ranks_per_node": 4, "shard_group": 2)", *kThree = R"({ "stage": 3 })";
  constexpr const char* kSecondary = R"({ "stage": 3, "zero_hpz_partition_size": 2 })";
  struct Row {
    const char *world, *zero, *more, *says;
  };
  const Row rows[] = {
      {R"("ranks_per_node": 4, "shard_group": 3)", kThree, "", "4 ranks share the batch, and groups of 3 ranks"},
      {R"("ranks_per_node": 4, "shard_group": 8)", kThree, "", "4 ranks share the batch, and groups of 8 ranks"},
      {kFour, R"({ "stage": 0 })", "", "ZeRO stage 0 shards nothing"},
      {kFour, R"({ "stage": 3, "offload_optimizer": { "device": "cpu" } })", "", "an offloaded optimizer whose shards"},
      {kFour, R"({ "stage": 1 })", R"("compression": { "method": "sign", "groups": 4 },)", "compressed gradients with"},
      {kFour, kThree, R"("quirks": ["mean_of_rank_means"],)", "shard groups with quirks"},
      {kFour, kThree, R"("numerics": "fast",)", "shard groups in a run of fast arithmetic"},
      {kFour, kThree, R"("recovery": { "memory_ladder": true },)", "the memory ladder with shard groups"},
      {R"("ranks_per_node": 3)", kSecondary, "", "3 ranks share the batch, and groups of 2 ranks"},
      {kFour, kSecondary, "", "secondary shards where shards are in groups themselves"},
      {R"("ranks_per_node": 4)",
       R"({ "stage": 3, "zero_hpz_partition_size": 2, "offload_optimizer": { "device": "cpu" },
            "offload_param": { "device": "nvme", "nvme_path": "nvme" } })",
       "", "secondary shards of parameters in files"},
  };
  for (const Row& row : rows)
    EXPECT_NE(refusal_of(scenario_text(row.world, row.zero, row.more)).find(row.says), std::string::npos)
        << row.says << "\nis not in\n"
        << refusal_of(scenario_text(row.world, row.zero, row.more));
  EXPECT_EQ(refusal_of(scenario_text(kFour, kThree)), "");
  EXPECT_EQ(refusal_of(scenario_text(R"("ranks_per_node": 4)", kSecondary)), "");
}

TEST(Fp8, WhatItDoesNotGoWithIsRefusedWithTheReason) {
  constexpr const char *kTwo = R"("ranks_per_node": 2)", *kNone = R"({ "stage": 0 })";
  struct Row {
    const char *world, *more, *says;
  };
  const Row rows[] = {
      {R"("replicas": 2, "tensor": 2)", R"("fp8": { "scaling": "current" },)",
       "a maximum over ranks inside each product"},
      {kTwo, R"("fp8": { "scaling": "mx" }, "compression": { "method": "sign", "groups": 2 },)",
       "compressed gradients"},
      {kTwo, R"("fp8": { "scaling": "mx" }, "quirks": ["mean_of_rank_means"],)", "fp8 with quirks"},
      {kTwo, R"("fp8": { "scaling": "mx" }, "numerics": "fast",)", "fp8 in a run of fast arithmetic"},
      {kTwo, R"("fp8": { "scaling": "mx" }, "local_sgd": { "workers": 2, "every": 2 },)", "fp8 with local SGD"},
      {kTwo, R"("fp8": { "scaling": "never" },)", "never"},
      {kTwo, R"("fp8": { "format": "e4m3" },)", "scaling"},
      {kTwo, R"("fp8": { "scaling": "delayed", "amax_history_len": 0 },)", "0 is out of range"},
  };
  for (const Row& row : rows)
    EXPECT_NE(refusal_of(scenario_text(row.world, kNone, row.more)).find(row.says), std::string::npos)
        << row.says << "\nis not in\n"
        << refusal_of(scenario_text(row.world, kNone, row.more));
  EXPECT_EQ(refusal_of(scenario_text(R"("replicas": 2, "pipeline": 2)", kNone, R"("fp8": { "scaling": "delayed" },)")),
            "");
}

TEST(Parallel, TheBatchIsSharedByReplicas) {
  const Scenario scenario = load_scenario_text(scenario_text(R"("replicas": 2, "pipeline": 4)"), "parallel.json");
  EXPECT_EQ(scenario.world.ranks(), 8);
  EXPECT_EQ(data_size(scenario), 2);
  EXPECT_EQ(scenario.accumulation, 4);
  EXPECT_EQ(micro_batches_of_replica(scenario), 4);
}

// With a vocabulary that outweighs layers, the stages at the ends get fewer of them.
TEST(Parallel, PiecesByParameters) {
  const std::string text = scenario_text(R"("replicas": 1, "pipeline": 2, "pipeline_layers": "parameters")");
  EXPECT_EQ(load_scenario_text(text, "parallel.json").train.layout.parallel.layers, (std::vector<int>{2, 2}));
  LoadOptions options;
  options.sets = {"model.vocab=2000", "model.tied=true"};
  EXPECT_EQ(load_scenario_text(text, "parallel.json", options).train.layout.parallel.layers, (std::vector<int>{1, 3}));
}

CheckResult judged(const Scenario& scenario, const RunRecord& run, const char* name, const char* argument) {
  return judge(CheckSpec{name, argument}, {scenario, run, nullptr, std::nullopt, {}});
}

// A run whose stages are slowed down has another bubble, and one that holds more has more in flight.
TEST(Parallel, ChecksOfPipelinesCanBeRed) {
  const Scenario scenario =
      load_scenario_text(scenario_text(R"("replicas": 1, "pipeline": 2, "network": "ideal")"), "parallel.json");
  RunRecord run = Simulation(scenario, {}).run();
  EXPECT_TRUE(judged(scenario, run, "live_activations", "").ok);
  EXPECT_TRUE(judged(scenario, run, "bubble_formula", "300").ok);
  EXPECT_FALSE(judged(scenario, run, "bubble_formula", "0.001").ok);  // these stages do not cost alike
  ++run.traffic.pipeline[1].in_flight.front();
  EXPECT_FALSE(judged(scenario, run, "live_activations", "").ok);
}

}  // namespace
}  // namespace seeksim::harness
