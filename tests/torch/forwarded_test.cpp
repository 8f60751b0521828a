// Scripts whose own backend (here gloo) carries the data below seeksim's: what docs/torch-own-backend.md promises.

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/torch/script_runs.h"

namespace seeksim::harness::torch {
namespace {

using nlohmann::json;

class Forwarded : public testing::ScriptRuns {
 protected:
  // A run over the script's own backend, with a fault where a rule is given.
  Captured over(const std::string& name, const std::string& backend, const std::string& rule,
                const std::vector<std::string>& script, const std::string& ranks = "2") {
    return run(name,
               {"--np", ranks, "--backend", backend, "--set", "torch.timeout_s=8", "--set", "faults=[" + rule + "]"},
               script);
  }
  // Hashes of what the collectives of two runs gave and took are the same, as far as compare looks.
  void expect_same_bits(const std::string& a, const std::string& b) {
    EXPECT_EQ(compared(a, b, 0)["grade"], "bits") << a << " and " << b;
  }
};

TEST_F(Forwarded, AScriptOverGlooIsRecordedAndJudged) {
  EXPECT_STATUS(over("ddp", "forwarded", "", {example("ddp.py")}), 0);
  const json found = report("ddp");
  EXPECT_EQ(found["backend"], "forwarded");
  EXPECT_EQ(detail(found, "collectives_match"), "13 collectives, the same on every rank");
  EXPECT_EQ(found["ranks"][0]["calls"]["all_reduce"], 8) << found["ranks"][0];
}

TEST_F(Forwarded, ARankThatNeverJoinsIsNamedBeforeGlooBegins) {
  EXPECT_STATUS(over("run", "forwarded", R"({"kind": "collective_timeout", "rank": 1, "step": 2, "phase": "backward"})",
                     {example("ddp.py")}),
                3);
  const json found = report("run")["culprits"];
  EXPECT_EQ(found["ranks"], json::array({1}));
  EXPECT_EQ(found["blame"], "did_not_join");
  EXPECT_LT(found["waited_s"].get<double>(), 10.0);
}

TEST_F(Forwarded, ADeathInsideACollectiveIsNamed) {
  EXPECT_STATUS(over("run", "forwarded", R"({"kind": "rank_crash", "mode": "during", "rank": 1, "step": 2})",
                     {example("ddp.py")}),
                1);
  EXPECT_EQ(report("run")["culprits"]["blame"], "is_dead");
  EXPECT_EQ(report("run")["culprits"]["ranks"], json::array({1}));
}

TEST_F(Forwarded, ALostContributionIsMissed) {
  EXPECT_STATUS(over("run", "forwarded", R"({"kind": "message_drop", "rank": 0, "step": 2, "phase": "backward"})",
                     {example("ddp.py")}),
                3);
  EXPECT_EQ(report("run")["culprits"]["blame"], "contribution_lost");
}

TEST_F(Forwarded, ARankThatMeansAnotherSizeIsTheOddOneOut) {
  EXPECT_STATUS(over("run", "forwarded",
                     R"({"kind": "collective_mismatch", "mode": "count", "rank": 1, "step": 1, "phase": "backward"})",
                     {example("ddp.py"), "--batch", "6"}, "3"),
                1);
  EXPECT_NE(detail(report("run"), "collectives_match").find("rank 1 means"), std::string::npos) << report("run");
}

// What the others see of a contribution is another number; the rank's own tensor, and so its digest, is not.
TEST_F(Forwarded, ABitThatFlipsOnItsWayIsFoundInTheSumAlone) {
  EXPECT_STATUS(over("clean", "forwarded", "", {example("ddp.py"), "--steps", "5"}), 0);
  EXPECT_STATUS(over("flipped", "forwarded",
                     R"({"kind": "bit_flip", "rank": 1, "step": 2, "site": "message", "op": "all_reduce", "bit": 30})",
                     {example("ddp.py"), "--steps", "5"}),
                0);
  EXPECT_EQ(compared("clean", "flipped", 1)["first"]["origin"], "in_collective");
}

TEST_F(Forwarded, ABitThatFlipsInAGradientIsFoundBeforeItsSum) {
  EXPECT_STATUS(over("clean", "forwarded", "", {example("ddp.py"), "--steps", "5"}), 0);
  EXPECT_STATUS(over("flipped", "forwarded", R"({"kind": "bit_flip", "rank": 1, "step": 2, "bit": 30})",
                     {example("ddp.py"), "--steps", "5"}),
                0);
  EXPECT_EQ(compared("clean", "flipped", 1)["first"]["origin"], "before_collective");
}

TEST_F(Forwarded, AContributionThatCountsTwiceChangesTheSum) {
  EXPECT_STATUS(over("clean", "forwarded", "", {example("ddp.py"), "--steps", "4"}), 0);
  EXPECT_STATUS(over("twice", "forwarded",
                     R"({"kind": "message_corrupt", "mode": "dup_apply", "rank": 1, "step": 2, "phase": "backward"})",
                     {example("ddp.py"), "--steps", "4"}),
                0);
  EXPECT_EQ(compared("clean", "twice", 1)["first"]["origin"], "in_collective");
}

TEST_F(Forwarded, NaNAndNoMemoryComeAsWithoutAnotherBackend) {
  EXPECT_STATUS(over("nan", "forwarded", R"({"kind": "nan_inject", "rank": 1, "step": 2})", {example("ddp.py")}), 1);
  EXPECT_TRUE(is_red(report("nan"), "finite"));
  EXPECT_STATUS(over("oom", "forwarded", R"({"kind": "oom", "rank": 1, "step": 2})", {example("ddp.py")}), 1);
  EXPECT_NE(detail(report("oom"), "finished").find("out of memory"), std::string::npos) << report("oom");
}

TEST_F(Forwarded, ALateRankIsWaitedForAndChangesNoBit) {
  EXPECT_STATUS(over("clean", "forwarded", "", {example("ddp.py")}), 0);
  EXPECT_STATUS(
      over("late", "forwarded", R"({"kind": "collective_timeout", "mode": "late", "delay_s": 2, "rank": 1, "step": 2})",
           {example("ddp.py")}),
      0);
  expect_same_bits("clean", "late");
}

// Gathered by gloo and folded with torch's operations, sums have the bits of those in shared memory. In another order
// they do not, and then they have those of that order.
TEST_F(Forwarded, GatheredSumsHaveTheBitsOfTheBackendInSharedMemory) {
  const std::vector<std::string> ddp = {example("ddp.py"), "--steps", "4"};
  const std::vector<std::string> fsdp2 = {example("fsdp2.py"), "--steps", "4"};
  EXPECT_STATUS(run("canonical", {"--np", "4"}, ddp), 0);
  EXPECT_STATUS(run("gathered", {"--np", "4", "--backend", "gathered"}, ddp), 0);
  EXPECT_STATUS(run("sharded", {"--np", "4", "--backend", "gathered"}, fsdp2), 0);
  expect_same_bits("canonical", "gathered");
  expect_same_bits("canonical", "sharded");
  EXPECT_STATUS(run("wrong", {"--np", "4", "--backend", "gathered", "--set", "torch.sums=reversed"}, ddp), 0);
  EXPECT_STATUS(run("reversed", {"--np", "4", "--set", "torch.sums=reversed"}, ddp), 0);
  EXPECT_EQ(compared("canonical", "wrong", 1)["first"]["origin"], "in_collective");
  expect_same_bits("reversed", "wrong");
}

// What is preloaded is asked at each call of NCCL, and a rule answers.
TEST_F(Forwarded, ARuleAboutNcclReachesThePreloadedLibrary) {
  const Captured ran =
      over("run", "forwarded", R"({"kind": "device_error", "rank": 1, "op": "all_reduce", "count": 2})",
           {paths::source_dir() + "/tests/pytorch/scripts/calls_nccl.py"});
  EXPECT_NE(ran.out.find("NCCL returned [1, 1]"), std::string::npos) << ran.out << ran.err;
  const json fired = report("run")["faults"][0];
  EXPECT_EQ(fired["fired"], 2) << fired;
}

TEST_F(Forwarded, Fsdp2AndDeepSpeedsZero2RunOverGloo) {
  EXPECT_STATUS(over("fsdp2", "forwarded", "", {example("fsdp2.py"), "--steps", "3"}), 0);
  if (!has("deepspeed")) GTEST_SKIP() << "there is no DeepSpeed in this environment";
  EXPECT_STATUS(over("zero2", "forwarded", "", {example("layouts.py"), "--layout", "zero2"}), 0);
  EXPECT_STATUS(over("folded", "gathered", "", {example("layouts.py"), "--layout", "zero2"}), 0);
  EXPECT_STATUS(run("canonical", {"--np", "2"}, {example("layouts.py"), "--layout", "zero2"}), 0);
  expect_same_bits("canonical", "folded");
}

TEST_F(Forwarded, AnOrderThatTheBackendDecidesIsBadInput) {
  EXPECT_STATUS(run("run", {"--backend", "forwarded", "--set", "torch.sums=reversed"}, {example("ddp.py")}), 2);
  EXPECT_STATUS(run("run", {"--backend", "gathered", "--set", "torch.sums=two_parts"}, {example("ddp.py")}), 2);
  EXPECT_STATUS(run("run", {"--backend", "gloo"}, {example("ddp.py")}), 2);
}

}  // namespace
}  // namespace seeksim::harness::torch
