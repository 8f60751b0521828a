// What the kernels that decide a step's time cost on a device: exact products, attention, tree sums, AdamW, a copy.
// Each is first held to the CPU's bits, then timed; a line "bench NAME: ..." says the time and the share of the
// device's bound, which is its fp32 rate for products and the measured copy for what is bound by memory.
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <functional>
#include <limits>

#include "kernels/attention.h"
#include "kernels/gemm.h"
#include "kernels/host_access.h"
#include "kernels/optimizer.h"
#include "kernels/random.h"
#include "kernels/tree.h"
#include "runtime/backend/gpu/cuda_memory.h"
#include "sim/emulated_memory.h"

namespace seeksim::test {
namespace {

using kernels::AttentionShape;
using kernels::Index;
using kernels::Lane;

// The arrays of one operation, on the CPU and on the device: float arrays one behind the other.
class Arrays {
 public:
  Arrays(runtime::DeviceMemory& device, Index floats) : device_(device), here_(static_cast<std::size_t>(floats)) {
    kernels::fill_normal({}, {here_.data(), floats}, 1, 0, 0.5f, 7);
    for (float& value : here_) value = value < 0 ? -value : value;  // second moments are not negative
    there_ = reinterpret_cast<float*>(device.allocate(bytes()));
    if (there_ != nullptr) kernels::copy_bytes(device.lane(), here_.data(), there_, bytes());
  }
  Arrays(const Arrays&) = delete;
  Arrays& operator=(const Arrays&) = delete;
  ~Arrays() {
    if (there_ != nullptr) device_.release(reinterpret_cast<std::byte*>(there_));
  }

  bool there() const { return there_ != nullptr; }
  float* on(Lane lane) { return lane.device == nullptr ? here_.data() : there_; }
  bool equal() const {
    std::vector<float> got(here_.size());
    kernels::copy_bytes(device_.lane(), there_, got.data(), bytes());
    return std::memcmp(got.data(), here_.data(), bytes()) == 0;
  }
  void wait() const {
    float last = 0;
    kernels::copy_bytes(device_.lane(), there_, &last, sizeof last);
  }
  std::size_t bytes() const { return here_.size() * sizeof(float); }

 private:
  runtime::DeviceMemory& device_;
  std::vector<float> here_;
  float* there_ = nullptr;
};

struct Operation {
  const char* name;
  Index floats = 0;  // of its arrays
  double flops = 0;  // of one run; 0: bound by memory
  double bytes = 0;  // that one run moves
  std::function<void(Lane, float*)> run;
};

double best_s(runtime::DeviceMemory& device, const Operation& operation, Arrays& arrays, int times) {
  using Clock = std::chrono::steady_clock;
  double best = std::numeric_limits<double>::max();
  for (int round = 0; round < 5; ++round) {
    arrays.wait();
    const Clock::time_point begin = Clock::now();
    for (int i = 0; i < times; ++i) operation.run(device.lane(), arrays.on(device.lane()));
    arrays.wait();
    best = std::min(best, std::chrono::duration<double>(Clock::now() - begin).count() / times);
  }
  return best;
}

// size: 1 for a device that is emulated. peak_flops: 0 where nobody knows it.
std::vector<Operation> operations(Index size) {
  const Index side = 64 * size, n = (Index(1) << 14) * size * size;
  const AttentionShape shape{2, 32 * size, size > 1 ? 16 : 2, 64};
  const Index rows = shape.samples * shape.tokens, width = shape.heads * shape.head_dim;
  const Index maps = shape.samples * shape.heads * shape.tokens;
  kernels::OptimizerStep step;
  step.lr = 1e-3f;
  step.weight_decay = 0.1f;
  constexpr Index kParts = 8;
  return {
      {"copy", 2 * n, 0, 2.0 * 4 * double(n),
       [=](Lane lane, float* a) { kernels::copy_bytes(lane, a, a + n, std::size_t(n) * sizeof(float)); }},
      {"gemm", 3 * side * side, 2.0 * double(side) * double(side) * double(side), 0,
       [=](Lane lane, float* a) {
         const auto at = [&](int i) { return kernels::Mat<float>{a + i * side * side, side, side, side}; };
         kernels::gemm<float>(lane, kernels::Trans::no, kernels::Trans::no, at(0), at(1), at(2));
       }},
      {"attention_forward", 4 * rows * width + maps * shape.tokens,
       4.0 * double(maps) * double(shape.tokens) / 2 * double(shape.head_dim), 0,
       [=](Lane lane, float* a) {
         kernels::attention_forward<float>(lane, shape, {a, rows, 3 * width, 3 * width},
                                           {a + 4 * rows * width, maps, shape.tokens, shape.tokens},
                                           {a + 3 * rows * width, rows, width, width});
       }},
      {"tree_sum_of_8", (kParts + 1) * n, 0, double(kParts + 1) * 4 * double(n),
       [=](Lane lane, float* a) {
         std::vector<kernels::TreePart> parts;
         for (Index i = 0; i < kParts; ++i) parts.push_back({{0, i}, a + i * n});
         kernels::tree_sum(lane, parts.data(), kParts, kParts, {a + kParts * n, n}, 0.125f);
       }},
      {"adamw", 4 * n, 0, 7.0 * 4 * double(n),
       [=](Lane lane, float* a) {
         kernels::optimize(lane, step, {a, n}, {a + n, n}, {a + 2 * n, n}, {a + 3 * n, n});
       }},
  };
}

void measure(runtime::DeviceMemory& device, Index size, int times, double peak_flops) {
  double copied_per_s = 0;
  for (const Operation& operation : operations(size)) {
    Arrays arrays(device, operation.floats);
    ASSERT_TRUE(arrays.there()) << operation.name << ": the device has no " << arrays.bytes() << " bytes";
    operation.run({}, arrays.on({}));
    operation.run(device.lane(), arrays.on(device.lane()));
    EXPECT_TRUE(arrays.equal()) << operation.name << " has not the CPU's bits";
    const double seconds = best_s(device, operation, arrays, times);
    ASSERT_GT(seconds, 0);
    if (operation.flops > 0) {
      std::printf("bench %s: %.4f ms, %.2f Tflop/s", operation.name, seconds * 1e3, operation.flops / seconds / 1e12);
      if (peak_flops > 0)
        std::printf(", %.1f %% of %.1f", operation.flops / seconds / peak_flops * 100, peak_flops / 1e12);
    } else {
      const double per_s = operation.bytes / seconds;
      if (copied_per_s == 0) copied_per_s = per_s;
      std::printf("bench %s: %.4f ms, %.1f GB/s, %.1f %% of the copy", operation.name, seconds * 1e3, per_s / 1e9,
                  per_s / copied_per_s * 100);
    }
    std::printf("\n");
  }
}

TEST(DeviceBenchGpu, WhatIsTimedHasTheCpusBits) {
  if (const std::string problem = runtime::cuda_problem(); !problem.empty()) GTEST_SKIP() << problem;
  runtime::CudaMemory device;
  measure(device, 64, 10, runtime::gpu_peak_flops(0));
}

TEST(DeviceBench, WhatIsTimedHasTheCpusBitsOnTheEmulatedDevice) {
  sim::EmulatedMemory device;
  measure(device, 1, 1, 0);
}

// The comparison can fail: an operation that does something else on the device.
TEST(DeviceBench, AnotherResultIsSeen) {
  sim::EmulatedMemory device;
  Arrays arrays(device, 64);
  EXPECT_TRUE(arrays.equal());
  arrays.on({})[63] += 1;
  EXPECT_FALSE(arrays.equal());
}

}  // namespace
}  // namespace seeksim::test
