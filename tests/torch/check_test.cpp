// seeksim torch check on scripts with a planted mistake and on their right twins (tests/torch/mistakes). Each is one
// run of the command; without SEEKSIM_TORCH_PYTHON all of these are skipped.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "harness/torch/child.h"
#include "tests/support/paths.h"
#include "tests/support/scenarios.h"

namespace seeksim::harness::torch {
namespace {

using nlohmann::json;

constexpr double kCheckLimit_s = 1200;  // the first call builds the backend

std::string mistakes() { return paths::source_dir() + "/tests/torch/mistakes/"; }
json expected() { return json::parse(harness::testing::read_all(mistakes() + "expected.json")); }

class CheckRun : public ::testing::Test {
 protected:
  void SetUp() override {
    const char* python = std::getenv("SEEKSIM_TORCH_PYTHON");
    if (python == nullptr) GTEST_SKIP() << "takes torch: ./seeksim test torch makes an environment with it";
    python_ = python;
  }

  // The command on a script; what it printed.
  Captured check(const std::string& script, const std::vector<std::string>& options) {
    std::vector<std::string> command = {paths::program(), "torch", "check", "--python", python_, "--report", report_};
    command.insert(command.end(), options.begin(), options.end());
    const bool saves = harness::testing::read_all(script).find("--resume") != std::string::npos;
    if (saves) command.insert(command.end(), {"--resume", "--resume {dir}"});
    command.insert(command.end(), {"--", script});
    if (saves) command.insert(command.end(), {"--save", "{dir}"});
    return capture(command, {{"COLUMNS", "0"}, {"PYTHONPATH", paths::source_dir() + "/examples/pytorch"}},
                   kCheckLimit_s);
  }

  // The names of the lines that are red.
  std::vector<std::string> red() const {
    const json report = json::parse(harness::testing::read_all(report_), nullptr, false);
    std::vector<std::string> names;
    for (const char* part : {"judges", "switches"})
      for (const json& line : report.at(part))
        if (line["state"] == "red") names.push_back(line["name"]);
    return names;
  }
  // Whether one of the lines that are expected to be red is.
  void expect_found(const std::string& name, const std::vector<std::string>& options) {
    const Captured ran = check(mistakes() + name + ".py", options);
    EXPECT_EQ(ran.ending.status, 1) << name << ran.out << ran.err;
    if (ran.ending.status != 1) return;
    bool found = false;
    for (const std::string& line : red()) {
      const json wanted = expected().at(name);
      found |= std::find(wanted.begin(), wanted.end(), line) != wanted.end();
    }
    EXPECT_TRUE(found) << name << ": not red for its reason\n" << ran.out;
  }

  std::string python_;
  harness::testing::TemporaryFolder folder_;
  std::string report_ = folder_.file("report.json");
};

TEST_F(CheckRun, TheTutorialsScriptIsRightAndAFlippedWeightIsNoticed) {
  const Captured ran = check(paths::source_dir() + "/examples/pytorch/ddp.py", {"--only", "buckets,weight"});
  EXPECT_EQ(ran.ending.status, 0) << ran.out << ran.err;
  EXPECT_EQ(red(), std::vector<std::string>());
}

TEST_F(CheckRun, MistakesOfTheScriptItselfAreFound) {
  for (const char* name : {"same_samples", "stays_in_eval", "zero_grad_too_late"})
    expect_found(name, {"--only", "again"});
}

TEST_F(CheckRun, AMistakeThatTakesASwitchIsFound) { expect_found("summed_gradients", {"--only", "np"}); }

// Its ranks sum nothing and share no weight: what rounding moves says how far is allowed, and the record sees the bit.
TEST_F(CheckRun, APipelineIsHeldToWhatRoundingMoves) {
  const Captured ran = check(paths::source_dir() + "/examples/pytorch/pipeline.py", {"--only", "fused,weight"});
  EXPECT_EQ(ran.ending.status, 0) << ran.out << ran.err;
  for (const char* words : {"of what other sums and roundings allow", "no weight is on two ranks; against the script"})
    EXPECT_NE(ran.out.find(words), std::string::npos) << ran.out;
}

TEST_F(CheckRun, ASwitchThatIsNotThereIsBadInput) {
  const Captured ran = check(paths::source_dir() + "/examples/pytorch/ddp.py", {"--only", "bucket"});
  EXPECT_EQ(ran.ending.status, 2) << ran.out;
  EXPECT_NE(ran.err.find("buckets"), std::string::npos) << ran.err;
}

using CheckNightly = CheckRun;

TEST_F(CheckNightly, EveryPlantedMistakeIsFoundForItsReason) {
  const json all = expected();
  for (const auto& [name, lines] : all.items()) expect_found(name, {});
}

TEST_F(CheckNightly, EveryRightTwinIsGreen) {
  for (const auto& file : std::filesystem::directory_iterator(mistakes() + "right")) {
    const Captured ran = check(file.path().string(), {});
    EXPECT_EQ(ran.ending.status, 0) << file.path() << ran.out << ran.err;
  }
}

}  // namespace
}  // namespace seeksim::harness::torch
