// Runs that start from a process that has imported torch and stays (--warm): the same bits and the same endings as
// those of ranks that import torch themselves.

#include <gtest/gtest.h>
#include <unistd.h>

#include <string>

#include "tests/torch/script_runs.h"

namespace seeksim::harness::torch {
namespace {

using TorchWarm = testing::ScriptRuns;

bool says(const Captured& ran, const std::string& words) { return ran.out.find(words) != std::string::npos; }

TEST_F(TorchWarm, ASecondRunFindsTheProcessAndHasTheSameBits) {
  EXPECT_STATUS(run("cold", {"--np", "2"}, {example("ddp.py")}), 0);
  const Captured first = run("first", {"--np", "2", "--warm", "20"}, {example("ddp.py")});
  EXPECT_STATUS(first, 0);
  const Captured second = run("second", {"--np", "2", "--warm", "20"}, {example("ddp.py")});
  EXPECT_STATUS(second, 0);
  EXPECT_TRUE(says(second, "has imported torch was there")) << second.out;
  EXPECT_EQ(compared("cold", "first", 0)["grade"], "bits");
  EXPECT_EQ(compared("cold", "second", 0)["grade"], "bits");
}

// A process that imported torch in another environment is another one: torch reads OMP_NUM_THREADS as it is imported.
TEST_F(TorchWarm, AnotherEnvironmentGetsAProcessOfItsOwn) {
  const std::string number = std::to_string(::getpid());
  for (const char* expected : {"was started and stays", "was there"}) {
    const Captured ran = capture(
        {paths::program(), "torch", "run", "--python", python_, "--np", "1", "--warm", "10", "--", example("ddp.py")},
        {{"COLUMNS", "0"}, {"SEEKSIM_TEST_NUMBER", number}}, testing::kLimit_s);
    EXPECT_STATUS(ran, 0);
    EXPECT_TRUE(says(ran, expected)) << ran.out;
  }
}

TEST_F(TorchWarm, AKilledRankEndsAsWithoutIt) {
  EXPECT_STATUS(run("crash", {example("crash.json"), "--warm", "20"}, {example("ddp.py")}), 0);
  EXPECT_EQ(report("crash")["culprits"]["ranks"], nlohmann::json::array({1}));
  EXPECT_EQ(report("crash")["processes"][1]["signal"], 9) << report("crash")["processes"];
}

TEST_F(TorchWarm, UnderALauncherRanksStartCold) {
  const Captured ran = run("launcher", {"--np", "1", "--warm", "20"}, {python_, example("ddp.py")});
  EXPECT_TRUE(says(ran, "cold: a launcher starts the ranks")) << ran.out << ran.err;
}

TEST_F(TorchWarm, AModuleThatCannotBeImportedIsBadInput) {
  const Captured ran = run("wrong", {"--np", "1", "--warm", "20", "--import", "no_such_module"}, {example("ddp.py")});
  EXPECT_STATUS(ran, 2);
  EXPECT_NE(ran.err.find("No module named 'no_such_module'"), std::string::npos) << ran.err;
}

}  // namespace
}  // namespace seeksim::harness::torch
