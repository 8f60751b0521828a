// The scripts of examples/pytorch that no other test runs: unmodified, and green by every judge.

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/torch/script_runs.h"

namespace seeksim::harness::torch {
namespace {

using nlohmann::json;

class TorchExamples : public testing::ScriptRuns {
 protected:
  // All of a run's judges hold, and it made so many steps.
  void expect_green(const std::vector<std::string>& script, int steps) {
    EXPECT_STATUS(run("run", {"--np", "2"}, script), 0);
    const json told = report("run");
    for (const json& rank : told["ranks"]) EXPECT_EQ(rank["steps"], steps) << told["ranks"];
  }
};

TEST_F(TorchExamples, ACnnWithBatchNormalisationAndWorkers) { expect_green({example("cnn.py")}, 8); }

TEST_F(TorchExamples, APipelineOfTorch) {
  expect_green({example("pipeline.py"), "--steps", "4"}, 4);
  // Its layers are on different ranks, and its micro-batches come in another order: the same sums.
  EXPECT_STATUS(run("gpipe", {"--np", "2"}, {example("pipeline.py"), "--steps", "4", "--schedule", "gpipe"}), 0);
  EXPECT_EQ(compared("run", "gpipe", 0)["grade"], "bits");
}

TEST_F(TorchExamples, TensorParallelismWithDTensor) {
  expect_green({example("tensor_parallel.py"), "--steps", "4"}, 4);
}

TEST_F(TorchExamples, LightningsTrainer) {
  if (!has("lightning")) GTEST_SKIP() << "there is no Lightning in this environment";
  expect_green({example("lightning_ddp.py")}, 8);
}

TEST_F(TorchExamples, FSDP2ThatSavesWithDistributedCheckpoint) {
  expect_green({example("resume.py"), "--folder", folder_.file("checkpoints")}, 8);
}

TEST_F(TorchExamples, DeepSpeedWithOffload) {
  if (!has("deepspeed")) GTEST_SKIP() << "there is no DeepSpeed in this environment";
  EXPECT_STATUS(run("run", {"--np", "2"}, {example("deepspeed_offload.py")}), 0);
}

}  // namespace
}  // namespace seeksim::harness::torch
