// Scripts whose tensors lie on GPUs, over NCCL, with seeksim before it: what docs/torch-own-backend.md promises of
// them. Skipped where torch finds no GPU. Two ranks take two GPUs, or NCCL 2.30 and NCCL_MULTI_RANK_GPU_ENABLE=1.

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "tests/torch/script_runs.h"

namespace seeksim::harness::torch {
namespace {

using nlohmann::json;

class TorchGpu : public testing::ScriptRuns {
 protected:
  void SetUp() override {
    ScriptRuns::SetUp();
    if (IsSkipped()) return;
    const Captured found = capture({python_, "-c", "import torch; print(torch.cuda.device_count())"}, {}, 300);
    gpus_ = found.ending.good() ? std::atoi(found.out.c_str()) : 0;
    if (gpus_ < 1) GTEST_SKIP() << "torch finds no GPU";
  }
  bool two_ranks_can_run() const { return gpus_ > 1 || std::getenv("NCCL_MULTI_RANK_GPU_ENABLE") != nullptr; }

  Captured over(const std::string& name, const std::string& backend, const std::string& rule,
                const std::vector<std::string>& script, const std::string& ranks = "2") {
    return run(name,
               {"--np", ranks, "--backend", backend, "--set", "torch.timeout_s=20", "--set", "faults=[" + rule + "]"},
               script);
  }
  static std::vector<std::string> on_gpus(const std::string& script, std::vector<std::string> more = {}) {
    std::vector<std::string> command = {example(script), "--device", "cuda"};
    command.insert(command.end(), more.begin(), more.end());
    return command;
  }

 private:
  int gpus_ = 0;
};

#define TWO_RANKS() \
  if (!two_ranks_can_run()) GTEST_SKIP() << "one GPU takes one rank without NCCL_MULTI_RANK_GPU_ENABLE=1"

TEST_F(TorchGpu, OneRankOverNcclIsRecorded) {
  EXPECT_STATUS(over("ddp", "forwarded", "", on_gpus("ddp.py"), "1"), 0);
  const json found = report("ddp");
  EXPECT_EQ(found["backend"], "forwarded");
  EXPECT_EQ(found["ranks"][0]["calls"]["all_reduce"], 8) << found["ranks"][0];
}

// The sum of two numbers has one value, so NCCL's is the one that seeksim makes of what it gathers. FSDP2's is too.
TEST_F(TorchGpu, NcclsSumsOfTwoRanksAreTheFoldedOnes) {
  TWO_RANKS();
  EXPECT_STATUS(over("nccl", "forwarded", "", on_gpus("ddp.py")), 0);
  EXPECT_STATUS(over("again", "forwarded", "", on_gpus("ddp.py")), 0);
  EXPECT_STATUS(over("folded", "gathered", "", on_gpus("ddp.py")), 0);
  EXPECT_STATUS(over("sharded", "forwarded", "", on_gpus("fsdp2.py")), 0);
  EXPECT_EQ(detail(report("nccl"), "collectives_match"), "13 collectives, the same on every rank");
  for (const char* other : {"again", "folded", "sharded"})
    EXPECT_EQ(compared("nccl", other, 0)["grade"], "bits") << other;
}

TEST_F(TorchGpu, EachOperationOverNcclGivesItsValues) {
  TWO_RANKS();
  const Captured ran =
      over("operations", "gathered", "", {paths::source_dir() + "/tests/pytorch/scripts/operations.py", "cuda", "any"});
  EXPECT_STATUS(ran, 0);
  EXPECT_NE(ran.out.find("operations are right"), std::string::npos) << ran.out << ran.err;
}

TEST_F(TorchGpu, ARankThatNeverJoinsIsNamedBeforeNcclBegins) {
  TWO_RANKS();
  EXPECT_STATUS(over("run", "forwarded", R"({"kind": "collective_timeout", "rank": 1, "step": 2, "phase": "backward"})",
                     on_gpus("ddp.py")),
                3);
  EXPECT_EQ(report("run")["culprits"]["ranks"], json::array({1}));
  EXPECT_EQ(report("run")["culprits"]["blame"], "did_not_join");
}

TEST_F(TorchGpu, ALostContributionIsMissedAndADeathIsNamed) {
  TWO_RANKS();
  EXPECT_STATUS(over("lost", "forwarded", R"({"kind": "message_drop", "rank": 0, "step": 2, "phase": "backward"})",
                     on_gpus("ddp.py")),
                3);
  EXPECT_EQ(report("lost")["culprits"]["blame"], "contribution_lost");
  EXPECT_STATUS(
      over("dead", "forwarded", R"({"kind": "rank_crash", "mode": "during", "rank": 1, "step": 2})", on_gpus("ddp.py")),
      1);
  EXPECT_EQ(report("dead")["culprits"]["blame"], "is_dead");
}

TEST_F(TorchGpu, FlippedBitsAndNaNsAreFoundWhereTheyWerePut) {
  TWO_RANKS();
  const auto ddp = on_gpus("ddp.py", {"--steps", "5"});
  EXPECT_STATUS(over("clean", "forwarded", "", ddp), 0);
  EXPECT_STATUS(
      over("message", "forwarded",
           R"({"kind": "bit_flip", "rank": 1, "step": 2, "site": "message", "op": "all_reduce", "bit": 30})", ddp),
      0);
  EXPECT_EQ(compared("clean", "message", 1)["first"]["origin"], "in_collective");
  EXPECT_STATUS(over("gradient", "forwarded", R"({"kind": "bit_flip", "rank": 1, "step": 2, "bit": 30})", ddp), 0);
  EXPECT_EQ(compared("clean", "gradient", 1)["first"]["origin"], "before_collective");
  EXPECT_STATUS(over("nan", "forwarded", R"({"kind": "nan_inject", "rank": 1, "step": 2})", ddp), 1);
  EXPECT_TRUE(is_red(report("nan"), "finite"));
  EXPECT_STATUS(over("oom", "forwarded", R"({"kind": "oom", "rank": 1, "step": 2})", ddp), 1);
  EXPECT_NE(detail(report("oom"), "finished").find("out of memory"), std::string::npos) << report("oom");
}

// A call of the real NCCL that the preloaded library answers in its place, or never.
TEST_F(TorchGpu, AnErrorOfNcclEndsTheRunAndACallThatNeverReturnsIsNamed) {
  TWO_RANKS();
  const Captured failed =
      over("failed", "forwarded", R"({"kind": "device_error", "rank": 1, "op": "all_reduce", "call": 3})",
           on_gpus("ddp.py"));
  EXPECT_STATUS(failed, 3);
  EXPECT_EQ(report("failed")["faults"][0]["fired"], 1) << report("failed")["faults"];
  EXPECT_NE(detail(report("failed"), "no_hang").find("rank 1 got no result from the backend below"), std::string::npos);
  EXPECT_NE((failed.out + failed.err).find("NCCL error"), std::string::npos) << failed.out << failed.err;
  EXPECT_STATUS(
      over("never", "forwarded",
           R"({"kind": "device_error", "mode": "never", "rank": 1, "op": "all_reduce", "call": 3})", on_gpus("ddp.py")),
      3);
  EXPECT_EQ(report("never")["culprits"]["ranks"], json::array({1})) << report("never")["culprits"];
}

}  // namespace
}  // namespace seeksim::harness::torch
