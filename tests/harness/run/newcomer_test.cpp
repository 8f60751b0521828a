// What newcomers met first: help that fits the command, and answers that name what they typed.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include <nlohmann/json.hpp>

#include "harness/input/json_text.h"
#include "tests/support/paths.h"
#include "tests/support/scenarios.h"

namespace seeksim::harness {
namespace {

using namespace testing;

constexpr const char* kConfig =
    R"({"train_batch_size": 64, "train_micro_batch_size_per_gpu": 4, "bf16": {"enabled": true},
  "zero_optimization": {"stage": 3}, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}})";

TEST(Newcomers, HelpEndsWithAnExampleOfItsOwnCommand) {
  for (const char* command : {"run", "plan", "doctor", "analyse", "study", "list"}) {
    const Ran ran = seeksim({command, "--help"});
    EXPECT_NE(ran.out.find(std::string("Try: seeksim ") + command), std::string::npos) << ran.out;
  }
}

TEST(Newcomers, PlanSaysThatNumberCheckpointsDoesNothingAlone) {
  TemporaryFolder folder;
  const std::string config = folder.write("ds.json", kConfig);
  const std::vector<std::string> sizes = {
      "plan", config, "--model", "layers=8,width=512,heads=8,vocab=512,context=512", "--gpus", "16", "--memory"};
  const auto with = [&sizes](const char* memory) {
    std::vector<std::string> arguments = sizes;
    arguments.emplace_back(memory);
    return seeksim(arguments);
  };
  const Ran tight = with("400MB"), roomy = with("80GB");
  EXPECT_NE(tight.out.find("number_checkpoints alone recomputes nothing"), std::string::npos) << tight.out;
  EXPECT_EQ(roomy.status, 0) << roomy.out << roomy.err;
  EXPECT_EQ(roomy.out.find("number_checkpoints"), std::string::npos) << roomy.out;
}

// A folder beside the user, by its bare name.
TEST(Newcomers, PlanTakesAModelsFolderByItsName) {
  TemporaryFolder folder;
  const std::string config = folder.write("ds.json", kConfig);
  std::filesystem::create_directories(folder.file("mine"));
  folder.write(
      "mine/config.json",
      R"({"model_type": "gpt2", "n_layer": 2, "n_embd": 64, "n_head": 4, "n_positions": 64, "vocab_size": 300})");
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(folder.path());
  const Ran ran = seeksim({"plan", config, "--model", "mine", "--gpus", "16", "--memory", "80GB"});
  std::filesystem::current_path(before);
  EXPECT_EQ(ran.status, 0) << ran.err;
  EXPECT_NE(ran.out.find("2 layers, width 64"), std::string::npos) << ran.out;
}

// A wrong world is the scenario's: no option is blamed that nobody typed.
TEST(Newcomers, PlanBlamesNoOptionThatWasNotGiven) {
  TemporaryFolder folder;
  Json scenario = Json::parse(small_text());
  scenario["world"] = {{"nodes", 3}, {"replicas", 4}};
  const Ran ran = seeksim({"plan", folder.write("s.json", scenario.dump()), "--memory", "80GB"});
  EXPECT_EQ(ran.status, 2) << ran.out;
  EXPECT_EQ(ran.err.find("--nodes"), std::string::npos) << ran.err;
  EXPECT_NE(ran.err.find("world"), std::string::npos) << ran.err;
}

TEST(Newcomers, TheReportHasOperationsByModule) {
  TemporaryFolder folder;
  seeksim({"run", folder.write("s.json", small_text()), "--report", folder.file("r.json")});
  std::ifstream file(folder.file("r.json"));
  const Json report = Json::parse(file);
  const Json& flops = report.at("step_flops");
  double sum = 0;
  for (const char* module : {"attention projections", "attention", "mlp", "head"})
    sum += flops.at(module).get<double>();
  EXPECT_DOUBLE_EQ(sum, report.at("figures").at("step_flops").get<double>());
  EXPECT_GT(report.at("figures").at("mfu").get<double>(), 0);
}

}  // namespace
}  // namespace seeksim::harness
