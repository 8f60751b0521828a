// Simulated ranks whose tensors lie on a device that the host cannot touch. On the emulated one, everywhere: the
// kernels are those for GPUs, and a host access to its memory faults. On a GPU, where there is one: the same
// scenarios, all ranks on the one card. The goldens come from the CPU.
#include <gtest/gtest.h>

#include "kernels/host_access.h"
#include "runtime/backend/gpu/cuda_memory.h"
#include "runtime/backend/gpu/nccl_api.h"
#include "sim/emulated_memory.h"
#include "tests/support/paths.h"
#include "tests/support/scenarios.h"

namespace seeksim::harness {
namespace {

using namespace testing;

struct OnDevice {
  const char* name;
  const char* scenario;
  std::vector<std::string> sets;
  int row = -1;
};

std::string set_of(const char* key, const char* value) { return std::string(key) + "=" + value; }

std::vector<OnDevice> all_runs() {
  std::vector<OnDevice> runs;
  static constexpr const char* kStages[] = {"0", "1", "2", "3"};
  static constexpr const char* kNames[] = {"zero0", "zero1", "zero2", "zero3"};
  for (int stage = 0; stage < 4; ++stage) {
    runs.push_back(
        {kNames[stage],
         "zero_equivalence",
         {"sweep=[]", set_of("deepspeed.zero_optimization.stage", kStages[stage]), "world.ranks_per_node=3"}});
  }
  runs.push_back(
      {"eight_ranks", "zero_equivalence", {"sweep=[]", "world.ranks_per_node=8", "batch_arithmetic=by_samples"}});
  runs.push_back(
      {"bf16",
       "equivalence/precision_equivalence",
       {"sweep=[]", "deepspeed.bf16.enabled=true", "deepspeed.zero_optimization.stage=2", "world.ranks_per_node=2"}});
  runs.push_back(
      {"fp16",
       "equivalence/precision_equivalence",
       {"sweep=[]", "deepspeed.fp16.enabled=true", "deepspeed.zero_optimization.stage=1", "world.ranks_per_node=2"}});
  runs.push_back({"dropout", "equivalence/dropout_equivalence", {"sweep=[]", "world.ranks_per_node=2"}});
  runs.push_back(
      {"checkpointing", "equivalence/checkpointing_equivalence", {"sweep=[]", "checkpointing={\"every\":2}"}});
  runs.push_back(
      {"tensor", "equivalence/tensor_equivalence", {"sweep=[]", "world.tensor=4", "world.ranks_per_node=4"}});
  runs.push_back({"sequence",
                  "equivalence/tensor_equivalence",
                  {"sweep=[]", "world.tensor=2", "world.ranks_per_node=4", "world.sequence_parallel=true"}});
  runs.push_back({"pipeline", "equivalence/pipeline_equivalence", {"sweep=[]"}});
  runs.push_back({"llama", "equivalence/llama_equivalence", {"sweep=[]", "deepspeed.zero_optimization.stage=3"}});
  runs.push_back({"experts", "equivalence/experts", {"sweep=[]", "deepspeed.zero_optimization.stage=3"}});
  runs.push_back({"deepseek", "equivalence/deepseek", {"sweep=[]", "deepspeed.zero_optimization.stage=2"}});
  runs.push_back({"shard_groups", "equivalence/hsdp", {"sweep=[]", "world.nodes=1"}});
  runs.push_back(
      {"divided_experts", "equivalence/expert_parallel", {"sweep=[]", "deepspeed.zero_optimization.stage=1"}});
  runs.push_back({"context",
                  "equivalence/context_parallel",
                  {"sweep=[]", "world.context_cut=zigzag", "deepspeed.zero_optimization.stage=2"}});
  runs.push_back({"context_llama",
                  "equivalence/context_parallel",
                  {"sweep=[]", "model.family=llama", "model.attention=fused", "deepspeed.bf16.enabled=true"}});
  runs.push_back({"context_ring",
                  "equivalence/ring_attention",
                  {"sweep=[]", "world.context_cut=zigzag", "model.dropout=0.2", "deepspeed.bf16.enabled=true"}});
  runs.push_back({"fused_attention", "equivalence/fused_attention", {"sweep=[]", "model.family=llama"}});
  runs.push_back({"offload",
                  "equivalence/offload_equivalence",
                  {"sweep=[]", "world.ranks_per_node=2", "deepspeed.zero_optimization.stage=2",
                   "deepspeed.zero_optimization.offload_optimizer.device=cpu"}});
  runs.push_back({"a_nan_and_its_birth", "numbers/nan_anywhere", {"sweep=[]"}});
  runs.push_back({"a_flip_found_by_running_twice", "numbers/rerun_bit_flip", {}});
  runs.push_back({"a_job_restarted", "deaths/job_restart", {"sweep=[]"}});
  return runs;
}

Ran run_on(const char* device, const OnDevice& run) {
  std::vector<std::string> arguments = {"run", seeksim::paths::source_dir() + "/scenarios/" + run.scenario + ".json",
                                        "--device", device};
  for (const std::string& set : run.sets) arguments.insert(arguments.end(), {"--set", set});
  return seeksim(arguments);
}

class DeviceEmulatedSlow : public ::testing::TestWithParam<OnDevice> {};
TEST_P(DeviceEmulatedSlow, TheCpusBits) {
  const Ran ran = run_on("emulated", GetParam());
  EXPECT_EQ(ran.status, 0) << ran.out << ran.err;
}
INSTANTIATE_TEST_SUITE_P(Runs, DeviceEmulatedSlow, ::testing::ValuesIn(all_runs()),
                         [](const auto& run) { return std::string(run.param.name); });

class DeviceGpu : public ::testing::TestWithParam<OnDevice> {};
TEST_P(DeviceGpu, TheCpusBits) {
  if (const std::string problem = runtime::cuda_problem(); !problem.empty()) GTEST_SKIP() << problem;
  const Ran ran = run_on("cuda", GetParam());
  EXPECT_EQ(ran.status, 0) << ran.out << ran.err;
}
INSTANTIATE_TEST_SUITE_P(Runs, DeviceGpu, ::testing::ValuesIn(all_runs()),
                         [](const auto& run) { return std::string(run.param.name); });

// A device that is not there is refused, with the reason.
TEST(Device, WithoutAGpuCudaIsRefused) {
  if (runtime::cuda_problem().empty()) GTEST_SKIP() << "there is a GPU";
  const Ran ran = run_on("cuda", all_runs().front());
  EXPECT_EQ(ran.status, 2);
  EXPECT_NE(ran.err.find(runtime::cuda_problem()), std::string::npos) << ran.err;
}

TEST(Device, WithoutAGpuNcclIsRefused) {
  if (runtime::nccl_problem().empty()) GTEST_SKIP() << "there is a GPU, and NCCL";
  for (const char* command : {"run", "launch"}) {
    const Ran ran = seeksim({command, seeksim::paths::source_dir() + "/scenarios/baseline.json", "--backend", "nccl"});
    EXPECT_EQ(ran.status, 2);
    EXPECT_NE(ran.err.find(runtime::nccl_problem()), std::string::npos) << ran.err;
  }
}

// The emulated device's memory must be able to fault: else host code that reads it would go unnoticed.
TEST(Device, TheHostCannotTouchEmulatedMemory) {
  sim::EmulatedMemory memory(std::size_t(1) << 20);
  std::byte* const data = memory.allocate(100);
  const std::byte sent{42};
  kernels::copy_bytes(memory.lane(), &sent, data, 1);
  std::byte back{0};
  kernels::copy_bytes(memory.lane(), data, &back, 1);
  EXPECT_EQ(back, sent);
  volatile std::byte* const touched = data;
  EXPECT_DEATH(static_cast<void>(*touched), "");
  EXPECT_EQ(memory.allocate(std::size_t(2) << 20), nullptr);
  memory.release(data);
}

}  // namespace
}  // namespace seeksim::harness
