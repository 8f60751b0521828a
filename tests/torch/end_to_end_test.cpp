// Real scripts with a real torch: what docs/pytorch.md promises.

#include <gtest/gtest.h>

#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "tests/torch/script_runs.h"

namespace seeksim::harness::torch {
namespace {

using nlohmann::json;
using testing::kLimit_s;

class TorchEndToEnd : public testing::ScriptRuns {};

TEST_F(TorchEndToEnd, DdpAndFsdp2UseTheSameBitsOnTwoRanks) {
  EXPECT_STATUS(run("ddp", {"--np", "2"}, {example("ddp.py")}), 0);
  EXPECT_STATUS(run("fsdp2", {"--np", "2"}, {example("fsdp2.py")}), 0);
  const json found = compared("ddp", "fsdp2", 0);
  EXPECT_EQ(found["grade"], "bits");
  EXPECT_EQ(found["losses"], 16);
  EXPECT_EQ(found["weights"], 2 * 8 * 29);
}

TEST_F(TorchEndToEnd, DdpAndFsdp2UseTheSameBitsOnFourRanks) {
  EXPECT_STATUS(run("ddp", {"--np", "4"}, {example("ddp.py"), "--steps", "5"}), 0);
  EXPECT_STATUS(run("fsdp2", {"--np", "4"}, {example("fsdp2.py"), "--steps", "5"}), 0);
  const json found = compared("ddp", "fsdp2", 0);
  EXPECT_EQ(found["grade"], "bits");
  EXPECT_EQ(found["losses"], 20);
}

// A rank that hangs, and what other programs are told of it.
TEST_F(TorchEndToEnd, ARunIsShownAsATraceAPageAndDumps) {
  const std::string rule = R"(faults=[{"kind": "collective_timeout", "rank": 1, "step": 2, "phase": "backward"}])";
  const std::string trace = folder_.file("trace.json"), page = folder_.file("run.html"), dumps = folder_.file("fr");
  EXPECT_STATUS(run("run",
                    {"--np", "2", "--trace", trace, "--html", page, "--flight-recorder", dumps, "--set",
                     "torch.timeout_s=5", "--set", rule},
                    {example("ddp.py")}),
                3);
  std::set<std::string> names;
  const json told = json::parse(harness::testing::read_all(trace));
  for (const json& event : told["traceEvents"]) names.insert(event["name"]);
  for (const char* name : {"data", "forward", "backward", "optimizer", "all_reduce", "step 1"})
    EXPECT_TRUE(names.contains(name)) << name;
  EXPECT_NE(harness::testing::read_all(page).find("did not join"), std::string::npos);
  const Captured analysed = capture({paths::program(), "analyse", dumps, "--json"}, {}, kLimit_s);
  EXPECT_EQ(json::parse(analysed.out)["accused"], json::array({1})) << analysed.out << analysed.err;
  // PyTorch's own tool takes them too.
  const Captured theirs = capture({python_, "-m", "torch.distributed.flight_recorder.fr_trace", dumps}, {}, kLimit_s);
  EXPECT_STATUS(theirs, 0);
  EXPECT_EQ(theirs.out.find("MISMATCH"), std::string::npos) << theirs.out;
}

class NeverJoins : public TorchEndToEnd, public ::testing::WithParamInterface<std::string> {};

TEST_P(NeverJoins, IsNamedWithCollectiveAndStepWithinTheTimeout) {
  EXPECT_STATUS(run("run", {example("never_joins.json")}, {example(GetParam())}), 0);
  const json found = report("run")["culprits"];
  EXPECT_EQ(found["ranks"], json::array({1}));
  EXPECT_EQ(found["blame"], "did_not_join");
  EXPECT_EQ(found["step"], 2);
  EXPECT_GE(found["waited_s"].get<double>(), 5.0);
  EXPECT_LT(found["waited_s"].get<double>(), 7.0);
  EXPECT_NE(found["collective"].get<std::string>().find("step 2, backward"), std::string::npos) << found;
  // Not expected, it is red: no progress.
  EXPECT_STATUS(run("red", {example("never_joins.json"), "--set", "expect=pass"}, {example(GetParam())}), 3);
}
INSTANTIATE_TEST_SUITE_P(TorchEndToEnd, NeverJoins, ::testing::Values("ddp.py", "fsdp2.py"),
                         [](const auto& script) { return script.index == 0 ? "Ddp" : "Fsdp2"; });

TEST_F(TorchEndToEnd, AFlippedBitIsInvisibleUntilTheRunsAreCompared) {
  EXPECT_STATUS(run("clean", {"--np", "2"}, {example("ddp.py")}), 0);
  EXPECT_STATUS(run("flipped", {example("bit_flip.json")}, {example("ddp.py")}), 0);
  const json found = compared("clean", "flipped", 1);
  EXPECT_EQ(found["first"]["step"], 3);  // the gradient of step 2 is in the weights of step 3
  EXPECT_EQ(found["first"]["origin"], "before_collective");
  EXPECT_NE(found["first"]["origin_text"].get<std::string>().find("rank 1 gave something else to all_reduce"),
            std::string::npos)
      << found;
  EXPECT_NE(found["first"]["what"].get<std::string>().find("weight "), std::string::npos) << found;
}

TEST_F(TorchEndToEnd, ARankThatForgetsASyncIsNamedByTheFirstStepThatUsesItsWeights) {
  EXPECT_STATUS(run("run", {"--np", "2"}, {example("ddp_no_sync.py")}), 1);
  const json found = report("run");
  EXPECT_TRUE(is_red(found, "replicas_equal")) << found;
  EXPECT_EQ(detail(found, "replicas_equal").substr(0, 7), "step 4:") << found;
  EXPECT_NE(detail(found, "replicas_equal").find("as the optimizer got it in step 3"), std::string::npos) << found;
  EXPECT_FALSE(is_red(found, "finished"));
}

TEST_F(TorchEndToEnd, ADeathIsNoticedBeforeTheTimeout) {
  EXPECT_STATUS(run("run", {example("crash.json")}, {example("ddp.py")}), 0);
  const json found = report("run");
  EXPECT_EQ(found["culprits"]["blame"], "is_dead");
  EXPECT_LT(found["culprits"]["waited_s"].get<double>(), 10.0);
  EXPECT_FALSE(is_red(found, "no_hang"));
}

TEST_F(TorchEndToEnd, TheBirthplaceOfANaNIsNamed) {
  EXPECT_STATUS(run("run", {example("nan.json")}, {example("ddp.py")}), 0);
  EXPECT_EQ(detail(report("run"), "finite").substr(0, 36), "rank 1: what it gave to all_reduce #");
}

TEST_F(TorchEndToEnd, ARankThatMeansAnotherSizeIsTheOddOneOut) {
  const std::vector<std::string> options = {
      "--np",
      "3",
      "--set",
      "torch.timeout_s=20",
      "--set",
      R"(faults=[{"kind": "collective_mismatch", "mode": "count", "rank": 1, "step": 1, "phase": "backward"}])"};
  EXPECT_STATUS(run("run", options, {example("ddp.py"), "--batch", "6"}), 1);
  EXPECT_TRUE(is_red(report("run"), "collectives_match"));
  EXPECT_NE(detail(report("run"), "collectives_match").find("rank 1 means"), std::string::npos) << report("run");
}

TEST_F(TorchEndToEnd, TheUsersOwnLauncherGivesTheSameBits) {
  EXPECT_STATUS(run("direct", {"--np", "2"}, {example("ddp.py")}), 0);
  EXPECT_STATUS(
      run("torchrun", {"--np", "2"},
          {"python", "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", example("ddp.py")}),
      0);
  EXPECT_EQ(compared("direct", "torchrun", 0)["grade"], "bits");
}

TEST_F(TorchEndToEnd, ARankMayShutDownWhileOperationsEnd) {
  EXPECT_STATUS(run("leaves", {"--np", "2"}, {paths::source_dir() + "/tests/pytorch/scripts/leaves_at_once.py"}), 0);
}

TEST_F(TorchEndToEnd, DeepSpeedsLauncherAndZeRO3UseDdpsBits) {
  if (!has("deepspeed")) GTEST_SKIP() << "there is no DeepSpeed in this environment";
  EXPECT_STATUS(run("ddp", {"--np", "2"}, {example("layouts.py")}), 0);
  EXPECT_STATUS(
      run("zero3", {"--np", "2"}, {"deepspeed", "--num_accelerators", "2", example("layouts.py"), "--layout", "zero3"}),
      0);
  const json found = compared("ddp", "zero3", 0);
  EXPECT_EQ(found["grade"], "bits");
  EXPECT_EQ(found["weights"], 2 * 3 * 29);
  EXPECT_EQ(found["losses"], 6);
}

TEST_F(TorchEndToEnd, AcceleratesAndTransformersScriptsRunUnchanged) {
  if (!has("accelerate") || !has("transformers") || !has("deepspeed")) GTEST_SKIP() << "not in this environment";
  EXPECT_STATUS(run("accelerate", {"--np", "2"}, {example("accelerate_ddp.py")}), 0);
  EXPECT_STATUS(run("ddp", {"--np", "2"}, {example("trainer.py")}), 0);
  EXPECT_STATUS(run("zero1", {"--np", "2"}, {example("trainer.py"), "--zero", "1"}), 0);
  EXPECT_EQ(compared("ddp", "zero1", 0)["grade"], "bits");
}

// As pytorch_optimizer's OrthoGrad 3.3.4: an optimizer around another one, which has set up nothing of a base.
TEST_F(TorchEndToEnd, AWrapperWithoutAStateOfItsOwnIsOneOptimizer) {
  const std::string script = folder_.write("wrapped.py", R"(import sys
import torch

class Around(torch.optim.Optimizer):
    def __init__(self, inner):
        self.inner, self.param_groups = inner, inner.param_groups
        self._optimizer_step_pre_hooks, self._optimizer_step_post_hooks = {}, {}
        self.defaults = inner.defaults
    def step(self, closure=None):
        return self.inner.step(closure)

torch.manual_seed(1)
model = torch.nn.Linear(4, 3)
optimizer = torch.optim.AdamW(model.parameters())
if sys.argv[1] == "around":
    optimizer = Around(optimizer)
for step in range(3):
    model(torch.full((2, 4), 0.5 + step)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
)");
  for (const char* name : {"plain", "around"})
    EXPECT_EQ(run(name, {"--np", "1"}, {script, name}).ending.status, 0) << name;
  const json same = compared("plain", "around", 0);
  EXPECT_EQ(same["grade"], "bits") << same;
  EXPECT_EQ(same["steps"], 3) << same;
}

// As DeepSpeed's engine counts: else the samples of a step that was left out would be those of the next one.
TEST_F(TorchEndToEnd, AStepThatAScalerLeavesOutIsCounted) {
  const std::string script = folder_.write("scaled.py", R"(import torch
torch.manual_seed(1)
model = torch.nn.Linear(4, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
for step in range(4):
    loss = model(torch.full((2, 4), 0.5 + step)).square().mean()
    scaler.scale(loss * 2.0**120 if step == 1 else loss).backward()
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
)");
  for (const char* name : {"one", "other"}) EXPECT_EQ(run(name, {"--np", "1"}, {script}).ending.status, 0) << name;
  const json same = compared("one", "other", 0);
  EXPECT_EQ(same["steps"], 4) << same;
  EXPECT_EQ(same["losses"], 4) << same;
}

// What the recorder stands around takes its arguments by name, as torch's own functions do.
TEST_F(TorchEndToEnd, WhatIsWatchedTakesArgumentsByName) {
  const std::string script = folder_.write("by_name.py", R"(import os, sys
import torch
import torch.distributed as dist
from torch.nn import utils

names = sys.argv[1] == "names"
dist.init_process_group(backend="gloo")
group = dist.new_group(ranks=[0, 1])
torch.manual_seed(1)
model = torch.nn.Linear(4, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(2):
    loss = model(torch.full((2, 4), 0.5 + step)).square().mean()
    torch.autograd.backward(tensors=loss) if names else loss.backward()
    for p in model.parameters():
        dist.all_reduce(tensor=p.grad, group=group) if names else dist.all_reduce(p.grad, dist.ReduceOp.SUM, group)
    if names:
        utils.clip_grad_norm_(parameters=model.parameters(), max_norm=0.1)
        utils.clip_grad_value_(parameters=model.parameters(), clip_value=0.01)
    else:
        utils.clip_grad_norm_(model.parameters(), 0.1)
        utils.clip_grad_value_(model.parameters(), 0.01)
    optimizer.step()
    optimizer.zero_grad()
path = f"{os.path.abspath(__file__)}.{dist.get_rank()}"
torch.save(obj=model.state_dict(), f=path) if names else torch.save(model.state_dict(), path)
dist.destroy_process_group()
)");
  for (const char* name : {"places", "names"}) EXPECT_STATUS(run(name, {"--np", "2"}, {script, name}), 0);
  const json same = compared("places", "names", 0);
  EXPECT_EQ(same["grade"], "bits") << same;
  EXPECT_EQ(report("names")["ranks"][0]["calls"], report("places")["ranks"][0]["calls"]);
}

// What is installed is what torch has to find, too: a script that is not recorded is judged by nothing.
TEST_F(TorchEndToEnd, AnInstalledSeeksimRecordsAsTheTreeDoes) {
  const std::string build = paths::program().substr(0, paths::program().rfind('/')), prefix = folder_.file("usr");
  const Captured installed =
      capture({"cmake", "--install", build, "--component", "program", "--prefix", prefix}, {}, kLimit_s);
  ASSERT_TRUE(installed.ending.good()) << installed.err;
  const std::string script = folder_.write("one.py", R"(import torch
torch.manual_seed(1)
model = torch.nn.Linear(4, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model(torch.ones(2, 4)).square().mean().backward()
optimizer.step()
)");
  const Captured ran = capture({prefix + "/bin/seeksim", "torch", "run", "--python", python_, "--np", "1", "--out",
                                folder_.file("x"), "--", script},
                               {{"SEEKSIM_HOME", ""}}, kLimit_s);
  EXPECT_EQ(ran.ending.status, 0) << ran.out << ran.err;
  EXPECT_FALSE(is_red(report("x"), "recorded"));
}

TEST_F(TorchEndToEnd, ALauncherThatStartsAnotherNumberOfRanksIsBadInput) {
  const Captured ran = run("run", {"--np", "3"},
                           {"python", "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
                            example("ddp.py"), "--steps", "1"});
  EXPECT_STATUS(ran, 2);
  EXPECT_NE(ran.err.find("it started 2 ranks"), std::string::npos) << ran.err;
}

TEST_F(TorchEndToEnd, AScriptThatFailsByItselfKeepsItsOutputAndIsBadInput) {
  const std::string script = folder_.write("broken.py", "import torch\nimport no_such_module\n");
  const Captured ran = run("run", {"--np", "2"}, {script});
  EXPECT_STATUS(ran, 2);
  EXPECT_NE(ran.err.find("[rank 0] ModuleNotFoundError"), std::string::npos) << ran.err;
  EXPECT_NE(ran.err.find("before the first step: ModuleNotFoundError"), std::string::npos) << ran.err;
}

// The claims of tests/pytorch/conformance.py: every operation of torch.distributed on 2, 3 and 4 ranks, and more.
TEST_F(TorchEndToEnd, TheBackendHoldsItsClaims) {
  const Captured ran = capture({python_, paths::source_dir() + "/tests/pytorch/conformance.py"}, {}, 1500);
  EXPECT_FALSE(ran.out_of_time);
  EXPECT_STATUS(ran, 0);
}

TEST_F(TorchEndToEnd, APythonWithoutTorchIsBadInput) {
  std::vector<std::string> arguments = {"run", "--python", "/usr/bin/python3", "--", example("ddp.py")};
  if (!std::filesystem::exists("/usr/bin/python3")) GTEST_SKIP() << "there is no other Python";
  const Captured ran = seeksim(arguments);
  EXPECT_STATUS(ran, 2);
  EXPECT_NE(ran.err.find("torch"), std::string::npos) << ran.err;
}

}  // namespace
}  // namespace seeksim::harness::torch
