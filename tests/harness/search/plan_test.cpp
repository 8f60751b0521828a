// seeksim plan: what it predicts is what an exact run needs, to the byte; what it recommends fits, and loads when it is
// merged into the user's file; and where nothing fits it says so.
#include "harness/commands/plan_command.h"

#include <nlohmann/json.hpp>

#include "harness/input/problem.h"
#include "harness/loading/features/hugging_face.h"
#include "harness/loading/load.h"
#include "harness/search/planner.h"
#include "harness/simulate/simulate.h"
#include "tests/support/scenarios.h"

namespace seeksim::harness {
namespace {

using namespace testing;

constexpr const char* kSizes = "layers=3,width=32,heads=4,vocab=64,context=16";

std::string config_text(int stage, bool bf16, int train = 32, int micro = 4) {
  Json config = {
      {"train_batch_size", train},
      {"train_micro_batch_size_per_gpu", micro},
      {"zero_optimization", {{"stage", stage}, {"reduce_bucket_size", 4000}, {"allgather_bucket_size", 4000}}},
      {"optimizer", {{"type", "AdamW"}, {"params", {{"lr", 1e-3}}}}}};
  if (stage == 3) {
    config["zero_optimization"].erase("allgather_bucket_size");
    config["zero_optimization"]["stage3_param_persistence_threshold"] = 100;
  }
  if (bf16) config["bf16"] = {{"enabled", true}};
  return config.dump();
}

std::string planned_text(int stage, bool bf16, int micro, const std::string& policy) {
  return R"({ "name": "s", "model": { "layers": 3, "width": 32, "heads": 4, "context": 16, "vocab": 64 },
  "data": { "synthetic": true }, "world": { "nodes": 2, "ranks_per_node": 2 }, "steps": 2,
  "recovery": { "policy": ")" +
         policy + R"(" }, "deepspeed": )" + config_text(stage, bf16, 32, micro) + " }";
}

RunRecord exact_run(const Scenario& scenario) { return Simulation(scenario, {}).run(); }

// A plan as its report has it.
Json planned(const std::vector<std::string>& arguments, int status) {
  TemporaryFolder folder;
  std::vector<std::string> all = {"plan"};
  all.insert(all.end(), arguments.begin(), arguments.end());
  all.insert(all.end(), {"--report", folder.file("plan.json")});
  const Ran ran = seeksim(all);
  EXPECT_EQ(ran.status, status) << ran.out << ran.err;
  return ran.status <= 1 ? Json::parse(read_all(folder.file("plan.json"))) : Json();
}

TEST(Plan, PredictsThePeakOfTheExactRunToTheByte) {
  int configurations = 0;
  for (const int stage : {0, 1, 2, 3}) {
    for (const bool bf16 : {false, true}) {
      for (const int micro : {8, 2}) {
        const std::string policy = micro == 8 ? "rebuild_and_redo" : "stop";  // with and without copies on peers
        const Scenario scenario = load_scenario_text(planned_text(stage, bf16, micro, policy), "s.json");
        const RunRecord exact = exact_run(scenario);
        const DryRun dry = dry_run(scenario);
        EXPECT_EQ(dry.peak_bytes, exact.memory.peak) << "stage " << stage << (bf16 ? ", bf16" : "");
        EXPECT_EQ(dry.at_peak, exact.memory.at_peak);
        EXPECT_GT(dry.peak_bytes, 0u);
        EXPECT_GT(dry.step_ns, 0);
        EXPECT_GT(dry.sent_bytes, 0u);
        std::size_t sum = 0;
        for (const std::size_t bytes : dry.at_peak) sum += bytes;
        EXPECT_EQ(sum, dry.peak_bytes) << "the map has to make up the peak";
        ++configurations;
      }
    }
  }
  EXPECT_GE(configurations, 10);
}

TEST(Plan, FitsExactlyAndNotWithAByteLess) {
  const std::string text = planned_text(2, true, 4, "stop");
  Scenario scenario = load_scenario_text(text, "s.json");
  const std::size_t peak = dry_run(scenario).peak_bytes;
  TemporaryFolder folder;
  const std::string file = folder.write("s.json", text);
  EXPECT_EQ(planned({file, "--memory", std::to_string(peak) + "B"}, 0)["recommended"], 0);
  EXPECT_NE(planned({file, "--memory", std::to_string(peak - 1) + "B"}, 0)["recommended"], 0);

  scenario.world.device.capacity_bytes = peak;
  EXPECT_EQ(exact_run(scenario).ranks[0].how, RankRecord::How::finished);
  scenario.world.device.capacity_bytes = peak - 1;
  EXPECT_NE(exact_run(scenario).ranks[0].how, RankRecord::How::finished);
}

TEST(Plan, FastArithmeticNeedsTheSameMemory) {
  TemporaryFolder folder;
  Json json = Json::parse(planned_text(1, false, 2, "stop"));
  const Json exact = planned({folder.write("exact.json", json.dump()), "--memory", "1GiB"}, 0);
  json["numerics"] = "fast";
  json["tf32"] = true;
  const Json fast = planned({folder.write("fast.json", json.dump()), "--memory", "1GiB"}, 0);
  EXPECT_EQ(fast["candidates"], exact["candidates"]);
}

// Each configuration is tried in turn; the recommendation is the first that fits, and an exact run of the merged file
// really fits there.
TEST(Plan, RecommendsTheLightestThatFits) {
  TemporaryFolder folder;
  const std::string file = folder.write("ds_config.json", config_text(0, true));
  const std::vector<std::string> fixed = {file, "--model", kSizes, "--gpus", "4"};
  const auto with = [&](const std::string& memory, std::vector<std::string> more = {}) {
    std::vector<std::string> all = fixed;
    all.insert(all.end(), {"--memory", memory});
    all.insert(all.end(), more.begin(), more.end());
    return all;
  };
  const Json every = planned(with("1GB", {"--all"}), 0);
  EXPECT_GT(every["candidates"].back()["host_peak_bytes_per_rank_max"], 0) << "the last measures use the host";
  EXPECT_EQ(every["recommended"], 0);
  EXPECT_TRUE(every["patch"].empty()) << every["patch"];
  ASSERT_GT(every["candidates"].size(), 5u);
  for (std::size_t i = 0; i < every["candidates"].size(); ++i) {
    const std::size_t peak = every["candidates"][i]["peak_bytes_per_rank_max"];
    bool earlier = false;
    for (std::size_t j = 0; j < i; ++j) earlier |= every["candidates"][j]["peak_bytes_per_rank_max"] <= peak;
    if (earlier) continue;
    const Json plan = planned(with(std::to_string(peak) + "B"), 0);
    EXPECT_EQ(plan["recommended"], i);
    EXPECT_EQ(plan["candidates"].size(), i + 1);
    Json scenario = Json::parse(planned_text(0, true, 4, "stop"));
    scenario["world"] = {{"nodes", 1}, {"ranks_per_node", 4}};
    scenario["deepspeed"] = plan["ds_config"];
    Scenario loaded = load_scenario_text(scenario.dump(), "s.json");
    loaded.world.device.capacity_bytes = peak;
    const RunRecord exact = exact_run(loaded);
    EXPECT_EQ(exact.ranks[0].how, RankRecord::How::finished) << exact.ranks[0].why;
    EXPECT_EQ(exact.memory.peak, peak) << plan["ds_config"];
  }
}

TEST(Plan, WhereNothingFitsItNamesTheClosest) {
  TemporaryFolder folder;
  const std::string file = folder.write("ds_config.json", config_text(0, false));
  const std::vector<std::string> arguments = {file, "--model", kSizes, "--gpus", "4", "--memory", "1000B"};
  const Json plan = planned(arguments, 1);
  EXPECT_TRUE(plan["recommended"].is_null());
  std::size_t least = SIZE_MAX, closest = 0;
  for (std::size_t i = 0; i < plan["candidates"].size(); ++i) {
    const std::size_t peak = plan["candidates"][i]["peak_bytes_per_rank_max"];
    if (peak < least) least = peak, closest = i;
    EXPECT_FALSE(plan["candidates"][i]["fits"]);
  }
  EXPECT_EQ(plan["closest"], closest);
  std::vector<std::string> all = {"plan"};
  all.insert(all.end(), arguments.begin(), arguments.end());
  EXPECT_NE(seeksim(all).out.find("no configuration fits; the closest is "), std::string::npos);
}

TEST(Plan, TellsAllProblemsAtOnce) {
  TemporaryFolder folder;
  const std::string file = folder.write("ds_config.json", config_text(1, false, 30));
  const Ran bare = seeksim({"plan", file});
  EXPECT_EQ(bare.status, 2);
  for (const char* option : {"--model", "--gpus N", "--memory 80GB"})
    EXPECT_NE(bare.err.find(option), std::string::npos) << bare.err;
  const Ran wrong = seeksim({"plan", file, "--model", "layers=0,widht=8", "--gpus", "4", "--memory", "80"});
  EXPECT_EQ(wrong.status, 2);
  for (const char* said :
       {"\"layers=0\" is no size", "there is no \"widht\"", "80GB, 79.1GiB", "cannot be cut evenly over 4"})
    EXPECT_NE(wrong.err.find(said), std::string::npos) << said << '\n' << wrong.err;
  const Ran nodes = seeksim({"plan", file, "--model", kSizes, "--gpus", "6", "--nodes", "4", "--memory", "1GB"});
  EXPECT_EQ(nodes.status, 2);
  EXPECT_NE(nodes.err.find("--nodes 4"), std::string::npos) << nodes.err;
  const std::string broken = folder.write("broken.json", R"({ "train_batch_size": 8, "zero_optimisation": {} })");
  const Ran unknown = seeksim({"plan", broken, "--model", kSizes, "--gpus", "4", "--memory", "1GB"});
  EXPECT_EQ(unknown.status, 0) << "DeepSpeed passes over it";
  EXPECT_NE(unknown.out.find("mean \"zero_optimization\"?"), std::string::npos) << unknown.out;
}

TEST(Plan, KeepsTheGlobalBatchOnOtherNumbersOfGpus) {
  TemporaryFolder folder;
  const std::string file = folder.write("s.json", planned_text(1, false, 4, "stop"));
  const Json plan = planned({file, "--gpus", "8", "--memory", "1GB"}, 0);
  EXPECT_EQ(plan["gpus"], 8);
  EXPECT_EQ(plan["ds_config"]["train_batch_size"], 32);
  EXPECT_EQ(plan["candidates"][0]["name"], "as given: stage 1, micro-batch 4 x 1");
}

// Replicas of the model, each on several GPUs: only they share the batch.
TEST(Plan, CountsTheRanksThatShareTheBatch) {
  TemporaryFolder folder;
  const auto cut = [&](const std::string& world) {
    return folder.write("s.json",
                        R"({ "name": "s", "model": { "layers": 4, "width": 32, "heads": 8, "context": 16, "vocab": 64 },
  "data": { "synthetic": true }, "world": )" +
                            world + R"(, "steps": 2, "recovery": { "policy": "stop" },
  "deepspeed": { "train_batch_size": 16, "train_micro_batch_size_per_gpu": 2, "zero_optimization": { "stage": 1 },
                 "optimizer": { "type": "AdamW", "params": { "lr": 1e-3 } } } })");
  };
  const Json replicas =
      planned({cut(R"({ "nodes": 1, "replicas": 2, "pipeline": 2, "tensor": 2 })"), "--memory", "1GB"}, 0);
  EXPECT_EQ(replicas["gpus"], 8);
  EXPECT_EQ(replicas["candidates"][0]["name"], "as given: stage 1, micro-batch 2 x 4");
  const std::string file = cut(R"({ "nodes": 1, "ranks_per_node": 4, "pipeline": 4, "tensor": 2 })");
  const Json more = planned({file, "--gpus", "16", "--memory", "1GB"}, 0);
  EXPECT_EQ(more["gpus"], 16);
  EXPECT_EQ(more["candidates"][0]["name"], "as given: stage 1, micro-batch 2 x 4");
  const Ran odd = seeksim({"plan", file, "--gpus", "12", "--memory", "1GB"});
  EXPECT_EQ(odd.status, 2);
  EXPECT_NE(
      odd.err.find("a copy of the model takes 8 GPUs (4 pipeline stages x 2 tensor-parallel). Use a multiple of 8."),
      std::string::npos)
      << odd.err;
}

// DeepSpeed's own estimate of model states, as its 0.19.8 computes it (estimate_zero{2,3}_model_states_mem_needs).
TEST(Plan, ItsSecondLedgerHasDeepSpeedsOwnModelStates) {
  const auto states = [&](const std::string& model, int stage, bool bf16, int ranks) {
    Json scenario = {{"name", "s"},
                     {"model", Json::object()},
                     {"data", {{"synthetic", true}}},
                     {"world", {{"nodes", ranks / 8}, {"ranks_per_node", 8}}},
                     {"numerics", "shapes"},
                     {"steps", 1},
                     {"recovery", {{"policy", "stop"}}},
                     {"deepspeed", {{"train_batch_size", ranks}, {"zero_optimization", {{"stage", stage}}}}}};
    for (const NamedModel& named : named_models())
      if (model == named.name) scenario["model"] = named.model();
    scenario["deepspeed"]["bf16"]["enabled"] = bf16;
    const Scenario loaded = load_scenario_text(scenario.dump(), "s.json");
    return deepspeed_ledger(loaded).front().bytes;
  };
  // Llama 3 8B has 8030261248 parameters, its embedding 128256 * 4096 of them.
  const double P = 8030261248, embedding = 128256.0 * 4096;
  EXPECT_NEAR(states("llama-3-8b", 3, true, 16), 4 * embedding + 18 * P / 16, 1e6);
  EXPECT_NEAR(states("llama-3-8b", 3, true, 16) / 1e9, 11.1, 0.1);
  EXPECT_NEAR(states("llama-3-8b", 2, true, 16), 2 * P + 18 * P / 16, 1e6);
  EXPECT_NEAR(states("llama-3-8b", 1, true, 8), 4 * P + 16 * P / 8, 1e6);
  // What the estimate leaves open: fp32 has no masters.
  EXPECT_NEAR(states("llama-3-8b", 0, false, 8), 16 * P, 1e6);
  EXPECT_NEAR(states("llama-3-8b", 3, false, 8), 8 * embedding + 16 * P / 8, 1e6);
}

TEST(Plan, ALlamaOf8BFitsByDeepSpeedsLedger) {
  TemporaryFolder folder;
  const std::string config = folder.write("ds.json", R"({ "train_batch_size": 16, "bf16": { "enabled": true },
  "train_micro_batch_size_per_gpu": 1, "zero_optimization": { "stage": 3 } })");
  const std::vector<std::string> given = {config, "--model", "llama-3-8b", "--gpus", "16", "--memory", "80GB"};
  std::vector<std::string> by_deepspeed = given;
  by_deepspeed.insert(by_deepspeed.end(), {"--ledger", "deepspeed"});
  const Json plan = planned(by_deepspeed, 0);
  EXPECT_EQ(plan["recommended"], 0);
  EXPECT_TRUE(plan["candidates"][0]["deepspeed"]["fits"]);
  EXPECT_EQ(plan["candidates"][0]["deepspeed"]["lines"][0]["name"], "model states");
  EXPECT_LT(plan["candidates"][0]["deepspeed"]["bytes"], 80e9);
  // 16 samples of 8192 tokens: 6 a parameter of a matrix, and attention.
  double flops = 0;
  for (const Json& of_module : plan["step_flops"]) flops += of_module.get<double>();
  EXPECT_NEAR(flops, 16 * 8192.0 * (6 * (8030261248.0 - 128256.0 * 4096) + 12.0 * 32 * 4096 * 8192), 1e-4 * flops);
  const double mfu = plan["candidates"][0]["mfu"];
  EXPECT_NEAR(mfu, flops / (plan["candidates"][0]["step_s"].get<double>() * 16 * 50e12), 1e-6);
  // The ledger of seeksim keeps attention's probabilities of 8192 tokens: the same configuration does not fit there.
  EXPECT_GT(plan["candidates"][0]["peak_bytes_per_rank_max"], 80e9);
  const Json shorter = planned({config, "--model", "llama-3-8b", "--gpus", "16", "--memory", "80GB", "--set",
                                "model.context=512", "--ledger", "deepspeed"},
                               0);
  EXPECT_LT(shorter["candidates"][0]["deepspeed"]["bytes"], plan["candidates"][0]["deepspeed"]["bytes"]);
}

TEST(Plan, TheLedgerOfAPlatformDecides) {
  TemporaryFolder folder;
  const std::string config = folder.write("ds.json", R"({ "train_batch_size": 16, "bf16": { "enabled": true },
  "train_micro_batch_size_per_gpu": 1, "zero_optimization": { "stage": 3 } })");
  const auto with = [&](const std::string& memory, const std::vector<std::string>& more) {
    std::vector<std::string> words = {config, "--model", "llama-3-8b", "--gpus", "16", "--memory", memory};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  };
  const std::vector<std::string> on_h100 = {"--platform", "h100", "--ledger", "platform"};
  const Json plan = planned(with("141GB", on_h100), 0);
  const Json& there = plan["candidates"][0]["platform"];
  EXPECT_EQ(plan["recommended"], 0);
  EXPECT_TRUE(there["fits"]);
  double sum = 0;
  for (const Json& line : there["lines"]) sum += line["bytes"].get<double>();
  EXPECT_NEAR(sum, there["bytes"].get<double>(), 1);
  EXPECT_GT(sum, 50e9);
  EXPECT_LT(sum, 141e9);
  // A byte less, and another configuration is recommended.
  const Json less = planned(with(std::to_string(std::int64_t(sum) - 1) + "B", on_h100), 0);
  EXPECT_NE(less["recommended"], 0);
  EXPECT_FALSE(less["candidates"][0]["platform"]["fits"]);
  // It is told beside the others, and does not decide without being asked to.
  const Json beside = planned(with("141GB", {"--platform", "h100", "--ledger", "deepspeed"}), 0);
  EXPECT_EQ(beside["candidates"][0]["platform"], there);
  EXPECT_EQ(planned(with("141GB", {"--ledger", "deepspeed"}), 0)["candidates"][0].count("platform"), 0u);
}

// Ranks 0 to 7 are on two nodes where a node has four of them.
TEST(Plan, ATraceOfTorchIsOfTheNodesThatTheRunHas) {
  TemporaryFolder folder;
  const std::string trace = folder.write("rank0.json", R"({"traceEvents": [{"cat": "kernel", "dur": 5e6,
      "args": {"Collective name": "allreduce", "In msg nelems": 8000000000, "Out msg nelems": 8000000000, "Group size": 8,
               "dtype": "BFloat16", "Process Group Ranks": "[0, 1, 2, 3, ...]"}}]})");
  const std::string config = folder.write("ds.json", R"({ "train_batch_size": 8, "bf16": { "enabled": true } })");
  const std::vector<std::string> words = {"plan",     config,   "--model",    "llama-3-8b", "--gpus",        "8",
                                          "--memory", "2000GB", "--platform", "h100",       "--torch-trace", trace};
  const auto with_nodes = [&](const char* nodes) {
    std::vector<std::string> all = words;
    all.insert(all.end(), {"--nodes", nodes});
    return seeksim(all).out;
  };
  EXPECT_NE(with_nodes("1").find("8 ranks, one node: measured"), std::string::npos) << with_nodes("1");
  EXPECT_NE(with_nodes("2").find("8 ranks, 2 nodes: measured"), std::string::npos) << with_nodes("2");
  EXPECT_EQ(seeksim({"plan", config, "--model", "llama-3-8b", "--torch-trace", trace}).status, 2)
      << "of which platform?";
}

TEST(Plan, WhatAPlatformDoesNotKnowIsSaid) {
  TemporaryFolder folder;
  const std::string config = folder.write("ds.json", R"({ "train_batch_size": 16, "bf16": { "enabled": true },
  "train_micro_batch_size_per_gpu": 1,
  "zero_optimization": { "stage": 3, "offload_optimizer": { "device": "cpu" } } })");
  std::vector<std::string> words = {"plan", config,     "--model", "llama-3-8b", "--gpus",
                                    "16",   "--memory", "80GB",    "--ledger",   "platform"};
  const Ran none = seeksim(words);
  EXPECT_EQ(none.status, 2);
  EXPECT_NE(none.err.find("there is no platform"), std::string::npos) << none.err;
  words.insert(words.end(), {"--platform", "h100"});
  const Ran unknown = seeksim(words);
  EXPECT_EQ(unknown.status, 1);
  EXPECT_NE(unknown.out.find("unknown"), std::string::npos) << unknown.out;
  EXPECT_NE(unknown.out.find("the platform's memory is unknown for each"), std::string::npos) << unknown.out;
}

TEST(Plan, ReadsAModelFromItsConfig) {
  TemporaryFolder folder;
  const std::string config = folder.write("ds.json", config_text(1, true));
  const std::string model = folder.write("model_config.json", R"({ "model_type": "llama", "num_hidden_layers": 2,
  "hidden_size": 32, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 48, "vocab_size": 64,
  "max_position_embeddings": 16, "rope_scaling": { "rope_type": "llama3" } })");
  const Json plan = planned({config, "--model", model, "--gpus", "4", "--memory", "1GB"}, 0);
  EXPECT_EQ(plan["parameters"], 2 * 64 * 32 + 32 + 2 * (2 * 32 + 32 * (32 + 2 * 16) + 32 * 32 + 3 * 32 * 48));
  const Ran wrong = seeksim({"plan", config, "--model", folder.file("none.json"), "--gpus", "4", "--memory", "1GB"});
  EXPECT_EQ(wrong.status, 2);
  EXPECT_NE(wrong.err.find("none.json"), std::string::npos) << wrong.err;
}

TEST(Plan, ReadsSizesWithTheirUnits) {
  EXPECT_EQ(bytes_of("80GB"), 80'000'000'000u);
  EXPECT_EQ(bytes_of("1.5GiB"), std::size_t(3) << 29);
  EXPECT_EQ(bytes_of("7B"), 7u);
  for (const char* wrong : {"80", "GB", "-1GB", "80 GB", "80gb", "1e30GB", ""})
    EXPECT_THROW(bytes_of(wrong), BadInput) << wrong;
}

}  // namespace
}  // namespace seeksim::harness
