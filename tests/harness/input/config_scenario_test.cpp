// A ds_config.json where a scenario is expected.
#include "harness/input/config_scenario.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/support/paths.h"
#include "tests/support/scenarios.h"

namespace seeksim::harness {
namespace {

using namespace testing;

std::int64_t ranks_of(const char* config) {
  return Json::parse(scenario_around(Json::parse(config), "ds.json")).at("world").at("ranks_per_node");
}

TEST(AConfigAlone, IsToldFromAScenario) {
  EXPECT_TRUE(is_deepspeed_config(Json::parse(R"({"zero_optimization": {"stage": 3}})")));
  EXPECT_TRUE(is_deepspeed_config(Json::parse(R"({"train_batch_size": "auto", "unknown": 1})")));
  EXPECT_FALSE(is_deepspeed_config(Json::parse(small_text())));
  EXPECT_FALSE(is_deepspeed_config(Json::parse(R"({"train_batch_size": 8, "world": {}})"))) << "half a scenario";
  EXPECT_FALSE(is_deepspeed_config(Json::parse(R"({"steps": 1, "fp16": {}})")));
  EXPECT_FALSE(is_deepspeed_config(Json::parse("{}")));
  EXPECT_FALSE(is_deepspeed_config(Json::parse("[]")));
}

TEST(AConfigAlone, HasAsManyRanksAsItsBatchIsFor) {
  EXPECT_EQ(ranks_of(R"({"zero_optimization": {}})"), 8);
  EXPECT_EQ(ranks_of(R"({"train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto"})"), 8);
  EXPECT_EQ(ranks_of(R"({"train_batch_size": 48, "train_micro_batch_size_per_gpu": 4,
                         "gradient_accumulation_steps": 4})"),
            3);
  EXPECT_EQ(ranks_of(R"({"train_batch_size": 12})"), 4);
  EXPECT_EQ(ranks_of(R"({"train_batch_size": 7})"), 1);
  EXPECT_EQ(ranks_of(R"({"train_batch_size": 4, "train_micro_batch_size_per_gpu": 9})"), 8)
      << "the loader says why not";
  EXPECT_EQ(ranks_of(R"({"train_batch_size": 4096, "train_micro_batch_size_per_gpu": 1,
                         "gradient_accumulation_steps": 1})"),
            64);
}

// As the Trainer's documentation has it: "auto" wherever the Trainer knows better.
constexpr const char* kTrainers = R"({
  # comments, as hjson has them
  "fp16": { "enabled": "auto", "loss_scale": 0, "initial_scale_power": 16 },
  "optimizer": { "type": "AdamW", "params": { "lr": "auto", "betas": "auto", "eps": "auto", "weight_decay": "auto" } },
  "scheduler": { "type": "WarmupLR", "params": { "warmup_min_lr": "auto", "warmup_max_lr": "auto",
                                                 "warmup_num_steps": "auto" } },
  "zero_optimization": { "stage": 3, "offload_optimizer": { "device": "cpu" }, "overlap_comm": true,
                         "stage3_gather_16bit_weights_on_model_save": true },
  "gradient_accumulation_steps": "auto", "gradient_clipping": "auto", "train_batch_size": "auto",
  "train_micro_batch_size_per_gpu": "auto", "wall_clock_breakdown": false
})";

TEST(AConfigAlone, Runs) {
  TemporaryFolder folder;
  const std::string file = folder.write("ds_config_zero3.json", kTrainers);
  const Ran ran = seeksim({"run", file});
  EXPECT_EQ(ran.status, 0) << ran.out << ran.err;
  EXPECT_NE(ran.out.find("PASS ds_config_zero3"), std::string::npos) << ran.out;
  EXPECT_NE(ran.out.find("is a DeepSpeed config, not a scenario"), std::string::npos) << ran.out;
  EXPECT_NE(ran.out.find("ZeRO stage 3"), std::string::npos) << ran.out;
  EXPECT_EQ(seeksim({"run", file, "--set", "deepspeed.zero_optimization.stage=2", "--set", "world.ranks_per_node=3",
                     "--set", "steps=2"})
                .status,
            0);
}

// What is wrong with it is told by its own lines, and nothing else is.
TEST(AConfigAlone, IsRefusedForWhatIsWrongWithIt) {
  TemporaryFolder folder;
  const Ran ran =
      seeksim({"run", folder.write("ds.json", "{\"train_batch_size\": 8,\n \"zero_optimization\": {\"stage\": 7}}")});
  EXPECT_EQ(ran.status, 2);
  EXPECT_NE(ran.err.find("ds.json:2: deepspeed.zero_optimization.stage"), std::string::npos) << ran.err;
  EXPECT_EQ(ran.err.find("unknown key"), std::string::npos) << ran.err;
}

}  // namespace
}  // namespace seeksim::harness
