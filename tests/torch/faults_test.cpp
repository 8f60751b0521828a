// Faults outside collectives, in scripts that know nothing of them: each is seen, named, and red or survived by the
// judges of every run, as its row of the table says.

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/torch/script_runs.h"

namespace seeksim::harness::torch {
namespace {

using nlohmann::json;

struct Case {
  std::string name;
  std::string rule;  // JSON
  std::string red;   // the judge that has to be red, alone or with others
  std::string says;  // in what that judge says
};
void PrintTo(const Case& one, std::ostream* out) { *out << one.name; }

class TorchFaults : public testing::ScriptRuns {
 protected:
  // The command on a script with a rule; what it printed.
  Captured break_it(const std::string& rule, const std::vector<std::string>& script) {
    return run("run", {"--np", "2", "--set", "torch.timeout_s=60", "--set", "faults=[" + rule + "]"}, script);
  }
  void expect(const Case& one, const Captured& ran) {
    EXPECT_STATUS(ran, ran.ending.status == 3 ? 3 : 1);
    const json told = report("run");
    EXPECT_EQ(told["faults"][0]["fired"], 1) << told["faults"];
    EXPECT_TRUE(is_red(told, one.red)) << ran.out;
    EXPECT_NE(detail(told, one.red).find(one.says), std::string::npos) << detail(told, one.red);
  }
};

class AtItsSite : public TorchFaults, public ::testing::WithParamInterface<Case> {};

TEST_P(AtItsSite, IsSeenNamedAndJudged) {
  expect(GetParam(), break_it(GetParam().rule, {example("ddp.py"), "--steps", "5"}));
}

const Case kCases[] = {
    {"NaNInAnActivation",
     R"({"kind": "nan_inject", "rank": 1, "step": 2, "site": "activation", "tensor": "blocks.0.up"})", "finite",
     "rank 1: its loss in step 2"},
    {"InfinityInAnActivationsGradient",
     R"({"kind": "inf_inject", "rank": 1, "step": 2, "site": "activation_gradient", "tensor": "head"})", "finite",
     "rank 1: what it gave to all_reduce"},
    {"ABitOfAWeight",
     R"({"kind": "bit_flip", "rank": 1, "step": 2, "site": "parameter", "tensor": "head.weight", "bit": 22})",
     "replicas_equal", "step 2: head.weight [128,64]: rank 0 and rank 1 differ"},
    {"NaNInAGradientThatHasAName",
     R"({"kind": "nan_inject", "rank": 1, "step": 2, "site": "gradient", "tensor": "norm.bias"})", "finite",
     "rank 1: what it gave to all_reduce"},
    {"ABitOfAReducedGradient",
     R"({"kind": "bit_flip", "rank": 0, "step": 2, "site": "reduced_gradient", "tensor": "norm.weight", "bit": 30})",
     "replicas_equal", "step 3: norm.weight"},
    {"InfinityInAnOptimizersState",
     R"({"kind": "inf_inject", "rank": 0, "step": 2, "site": "optimizer_state", "tensor": "head.weight.exp_avg"})",
     "finite", "rank 0: the weight head.weight in step 3, forward"},
    {"NaNInALoss", R"({"kind": "nan_inject", "rank": 1, "step": 3, "site": "loss"})", "losses_finite",
     "rank 1: the loss of step 3"},
    {"AModuleThatFindsNoMemory", R"({"kind": "oom", "rank": 1, "step": 2, "tensor": "blocks.0.up"})", "finished",
     "blocks.0.up finds no memory in forward"},
    {"AModuleThatFindsNoMemoryInBackward",
     R"({"kind": "oom", "rank": 1, "step": 2, "tensor": "head", "phase": "backward"})", "finished",
     "head finds no memory in backward"},
    {"ALoaderThatFails", R"({"kind": "data_error", "rank": 1, "step": 2})", "finished",
     "the loader cannot bring a batch of loader 0, epoch 0"},
    {"ALoaderThatSkips", R"({"kind": "data_error", "rank": 1, "step": 2, "mode": "skip"})", "samples",
     "rank 1 never gets batch 2"},
    {"ALoaderThatRepeats", R"({"kind": "data_error", "rank": 1, "step": 2, "mode": "dup_apply"})", "samples",
     "rank 1 has it in batch 1, rank 1 in batch 2"},
};
INSTANTIATE_TEST_SUITE_P(TorchFaults, AtItsSite, ::testing::ValuesIn(kCases),
                         [](const auto& one) { return one.param.name; });

// Survived, as the catalogue says of them: only time differs.
TEST_F(TorchFaults, WhatOnlyTakesTimeChangesNoBit) {
  const std::vector<std::string> script = {example("ddp.py"), "--steps", "5"};
  EXPECT_STATUS(run("clean", {"--np", "2"}, script), 0);
  const std::string rules = R"({"kind": "data_stall", "rank": 1, "step": 2, "delay_s": 0.2},
    {"kind": "straggler", "rank": 1, "step": 1, "factor": 1.5},
    {"kind": "straggler", "rank": 0, "phase": "backward", "factor": 1.2},
    {"kind": "slow_link", "link": {"from": 0, "to": 1}, "factor": 1e-3, "step": 1},
    {"kind": "clock_skew", "rank": 1, "offset_s": -86400, "drift_ppm": 200})";
  EXPECT_STATUS(break_it(rules, script), 0);
  for (const json& fault : report("run")["faults"]) EXPECT_GE(fault["fired"], 1) << fault;
  EXPECT_EQ(compared("clean", "run", 0)["grade"], "bits");
}

TEST_F(TorchFaults, ANameThatTheModelDoesNotHaveIsBadInputWithAHint) {
  const Captured module = break_it(R"({"kind": "nan_inject", "rank": 1, "site": "activation", "tensor": "block.0.up"})",
                                   {example("ddp.py"), "--steps", "2"});
  EXPECT_STATUS(module, 2);
  EXPECT_NE(module.err.find("no module 'block.0.up': did you mean 'blocks.0.up'?"), std::string::npos) << module.err;
  const Captured state =
      break_it(R"({"kind": "nan_inject", "rank": 0, "site": "optimizer_state", "tensor": "head.weight.exp_avrg"})",
               {example("ddp.py"), "--steps", "3"});
  EXPECT_STATUS(state, 2);
  EXPECT_NE(state.err.find("did you mean 'head.weight.exp_avg'?"), std::string::npos) << state.err;
}

TEST_F(TorchFaults, ACheckpointThatCannotBeWrittenEndsTheScriptWithItsName) {
  for (const std::string kind : {"nvme_write_error", "disk_full"}) {
    const std::string rule = R"({"kind": ")" + kind + R"(", "rank": 1, "path": "step-3"})";
    const Captured ran =
        break_it(rule, {example("resume.py"), "--epochs", "1", "--folder", folder_.file("checkpoints-" + kind)});
    expect({kind, rule, "finished", kind == "disk_full" ? "No space left on device" : "Input/output error"}, ran);
  }
}

TEST_F(TorchFaults, ASkewedClockMovesTheTimeThatAScriptSees) {
  const std::string script = folder_.write("clock.py",
                                           "import os, time\nimport torch\nimport torch.distributed as dist\n"
                                           "dist.init_process_group('gloo')\n"
                                           "mine = torch.tensor([time.time()], dtype=torch.float64)\n"
                                           "both = [torch.zeros_like(mine) for _ in range(2)]\n"
                                           "dist.all_gather(both, mine)\n"
                                           "assert 3000 < float(both[0] - both[1]) < 4000, both\n");
  const Captured ran = break_it(R"({"kind": "clock_skew", "rank": 1, "offset_s": -3600})", {script});
  EXPECT_STATUS(ran, 0);
}

// All ranks get the same wrong sum, so that only an undisturbed run tells.
TEST_F(TorchFaults, AContributionThatCountsTwiceIsNamedByACompareAndNoJudge) {
  const std::vector<std::string> script = {example("ddp.py"), "--steps", "4"};
  EXPECT_STATUS(run("clean", {"--np", "2"}, script), 0);
  EXPECT_STATUS(break_it(R"({"kind": "message_corrupt", "mode": "dup_apply", "rank": 1, "step": 1})", script), 0);
  EXPECT_EQ(report("run")["faults"][0]["fired"], 1);
  const json told = compared("clean", "run", 1);
  EXPECT_NE(told["grade"], "bits") << told;
  EXPECT_NE(told.dump().find("all_reduce"), std::string::npos) << told;
}

// Training asks its store for nothing. Who makes a group does.
TEST_F(TorchFaults, ADeadStoreIsMissedByWhoAsksIt) {
  const std::string rule = R"({"kind": "store_death", "step": 2})";
  EXPECT_STATUS(break_it(rule, {example("ddp.py"), "--steps", "5"}), 0);
  EXPECT_EQ(report("run")["faults"][0]["fired"], 2);
  const std::string groups = folder_.write(
      "groups.py",
      "import torch\nimport torch.distributed as dist\nfrom torch.nn.parallel import DistributedDataParallel\n"
      "dist.init_process_group('gloo')\nmodel = DistributedDataParallel(torch.nn.Linear(4, 1))\n"
      "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
      "for step in range(4):\n"
      "    optimizer.zero_grad()\n    model(torch.ones(2, 4)).sum().backward()\n    optimizer.step()\n"
      "    if step == 2:\n        dist.barrier(dist.new_group([0, 1]))\n");
  EXPECT_STATUS(run("clean", {"--np", "2"}, {groups}), 0);
  const Captured ran = break_it(rule, {groups});
  EXPECT_STATUS(ran, 1);
  EXPECT_TRUE(is_red(report("run"), "finished")) << ran.out;
  EXPECT_FALSE(is_red(report("run"), "faults_fired")) << ran.out;
  // Of one rank that only asks: the store and the other rank are well, and wait for it.
  const Captured one = break_it(R"({"kind": "store_death", "rank": 1, "step": 2})", {groups});
  EXPECT_STATUS(one, 1);
  EXPECT_NE(detail(report("run"), "finished").find("rank 1"), std::string::npos) << one.out;
}

}  // namespace
}  // namespace seeksim::harness::torch
