// Training where tensors lie on a device that the host cannot touch: the emulated one, where a host access faults and
// whose kernels are those for GPUs.
#include <gtest/gtest.h>

#include "sim/emulated_memory.h"
#include "tests/support/simulated_training.h"

namespace seeksim::test {
namespace {

void expect_bits_of_the_cpu(const TrainPlan& plan, int ranks, bool native, const std::string& what) {
  const Simulated golden = run_simulated(plan, world_of(ranks, native));
  sim::EmulatedMemory memory;
  sim::WorldPlan world = world_of(ranks, native);
  world.device_memory = &memory;
  const Simulated run = run_simulated(plan, world);
  const std::string at = what + ", " + std::to_string(ranks) + " ranks" + (native ? ", native sums" : "");
  ASSERT_EQ(run.world.end, sim::WorldEnd::finished) << at << "\n" << run.world.wait_for_graph;
  EXPECT_EQ(run.world.fingerprint, golden.world.fingerprint) << at;
  for (int r = 0; r < ranks; ++r) {
    ASSERT_TRUE(run.outcomes[std::size_t(r)]) << at << ": " << run.world.ranks[std::size_t(r)].what;
    ASSERT_EQ(run.outcomes[std::size_t(r)]->ending, Ending::finished)
        << at << ": " << run.outcomes[std::size_t(r)]->why;
    EXPECT_EQ(run.outcomes[std::size_t(r)]->state, golden.outcomes[std::size_t(r)]->state) << at << ", rank " << r;
  }
}

TEST(DeviceMemory, EveryStageGivesTheCpusBits) {
  for (const int stage : {0, 1, 2, 3}) {
    TrainPlan plan = tiny_plan();
    plan.definition.steps = 2;
    plan.layout.zero = zero_plan(stage);
    expect_bits_of_the_cpu(plan, 2, stage % 2 == 0, "stage " + std::to_string(stage));
    if (HasFatalFailure()) return;
  }
}

TEST(DeviceMemorySlow, EveryStageInOddSizes) {
  for (const int stage : {0, 1, 2, 3}) {
    for (const int ranks : {1, 3}) {
      for (const bool native : {true, false}) {
        TrainPlan plan = tiny_plan(true);
        plan.layout.zero = zero_plan(stage);
        expect_bits_of_the_cpu(plan, ranks, native, "stage " + std::to_string(stage));
        if (HasFatalFailure()) return;
      }
    }
  }
}

struct Case {
  const char* name;
  int ranks;
  void (*edit)(TrainPlan&);
};
constexpr Case kCases[] = {
    {"bf16_with_masters", 2,
     [](TrainPlan& p) {
       p.definition.precision = {ElementType::bf16, ElementType::f32, true};
     }},
    {"fp16_throughout", 2,
     [](TrainPlan& p) {
       p.definition.precision = {ElementType::f16, ElementType::f16, false};
       p.layout.zero = zero_plan(2);
     }},
    {"dropout_recomputed_from_the_hosts_memory", 2,
     [](TrainPlan& p) {
       p.definition.model.layers = 3;
       p.definition.model.dropout = {0.1, 0.2, 0.1};
       p.layout.checkpointing = {2, {}, true};
       p.layout.zero = zero_plan(3);
     }},
    {"an_optimizer_on_the_host", 3,
     [](TrainPlan& p) {
       p.layout.zero = zero_plan(2);
       p.layout.offload.optimizer.home = Home::host;
       p.layout.offload.optimizer.ratio = 0.5;
     }},
    {"parameters_on_the_host", 2,
     [](TrainPlan& p) {
       p.layout.zero = zero_plan(3);
       p.layout.offload.optimizer.home = Home::host;
       p.layout.offload.optimizer.pin_memory = true;
       p.layout.offload.parameters.home = Home::host;
     }},
    {"a_llama_on_tensor_ways", 4,
     [](TrainPlan& p) {
       ModelPlan& m = p.definition.model;
       m.family = "llama";
       m.layers = 2;
       m.width = 16;
       m.heads = 8;
       m.kv_heads = 8;
       m.ffn = 30;
       p.layout.parallel.tensor = 2;
       p.layout.parallel.sequence_parallel = true;
     }},
    {"a_pipeline", 4,
     [](TrainPlan& p) {
       p.definition.model.layers = 2;
       p.layout.parallel.pipeline = 2;
       p.layout.zero = zero_plan(1);
     }},
    {"looking_for_nans", 2,
     [](TrainPlan& p) {
       p.provenance = {true, 1};
     }},
    {"micro_batches_run_twice", 2, [](TrainPlan& p) { p.recovery.rerun_and_compare = true; }},
};

TEST(DeviceMemorySlow, WhateverElseIsAskedFor) {
  for (const Case& c : kCases) {
    TrainPlan plan = tiny_plan();
    c.edit(plan);
    for (const bool native : {true, false}) expect_bits_of_the_cpu(plan, c.ranks, native, c.name);
    if (HasFatalFailure()) return;
  }
}

// Blocks lie on pages of their own, all of the capacity can be had, and a block that was given back can be had again.
TEST(DeviceMemory, TheEmulatedDeviceHasItsCapacity) {
  constexpr std::size_t kPage = 4096, kBig = std::size_t(5) << 20;
  sim::EmulatedMemory memory(kBig + 2 * kPage);
  std::byte* const big = memory.allocate(kBig);
  std::byte* const small = memory.allocate(1);
  std::byte* const last = memory.allocate(kPage);
  ASSERT_NE(last, nullptr);
  EXPECT_EQ(small, big + kBig);
  EXPECT_EQ(last, small + kPage);
  EXPECT_EQ(memory.allocate(1), nullptr);
  memory.release(big);
  EXPECT_EQ(memory.allocate(kBig), big);
  memory.release(last);
  EXPECT_EQ(memory.allocate(kPage + 1), nullptr);
  EXPECT_EQ(memory.allocate(kPage), last);
}

// The whole budget is the GPU's, but others have taken the memory: out of memory all the same, with both numbers.
TEST(DeviceMemory, MemoryThatOthersHaveIsOutOfMemory) {
  sim::EmulatedMemory memory(std::size_t(64) << 10);
  sim::WorldPlan world = world_of(1);
  world.device_memory = &memory;
  const Simulated run = run_simulated(tiny_plan(), world);
  ASSERT_TRUE(run.outcomes[0]) << run.world.ranks[0].what;
  EXPECT_NE(run.outcomes[0]->ending, Ending::finished);
  EXPECT_NE(run.outcomes[0]->why.find("has none left"), std::string::npos) << run.outcomes[0]->why;
}

}  // namespace
}  // namespace seeksim::test
