// Fast arithmetic on a device, compared with the contract there: on the emulated device everywhere, by copies to a CPU
// and back; on a GPU, if there is one, with cuBLASLt's products on tensor cores.
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "kernels/device_table.h"
#include "kernels/fast.h"
#include "kernels/gemm.h"
#include "kernels/host_access.h"
#include "kernels/tree.h"
#include "runtime/backend/gpu/cuda_memory.h"
#include "runtime/launch/numeric_audit.h"
#include "sim/emulated_memory.h"

namespace seeksim::test {
namespace {

using kernels::bf16;
using kernels::fp16;
using kernels::Index;
using kernels::Lane;
using kernels::Mat;
using kernels::Trans;

// An array on the device, of random values.
template <class T>
class OnDevice {
 public:
  OnDevice(runtime::DeviceMemory& device, Index n, std::uint64_t seed) : device_(device), n_(n) {
    std::mt19937_64 rng(seed);
    std::vector<float> values(std::size_t(n) + 1);
    for (float& x : values) x = float(std::int64_t(rng() >> 40) - (1 << 23)) * 0x1p-23f;
    std::vector<T> stored(values.size());
    if constexpr (std::is_same_v<T, float>)
      stored = values;
    else
      kernels::narrow<T>({}, {values.data(), n}, {stored.data(), n});
    data_ = reinterpret_cast<T*>(device.allocate((std::size_t(n) + 1) * sizeof(T)));
    kernels::copy_bytes(device.lane(), stored.data(), data_, std::size_t(n) * sizeof(T));
  }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;
  ~OnDevice() { device_.release(reinterpret_cast<std::byte*>(data_)); }
  T* data() const { return data_; }
  Mat<T> mat(Index rows, Index cols) const { return {data_, rows, cols, cols}; }

 private:
  runtime::DeviceMemory& device_;
  T* data_ = nullptr;
  Index n_;
};

struct Shape {
  Index m, n, k;
};
constexpr Shape kShapes[] = {{1, 1, 1}, {7, 65, 33}, {64, 64, 64}, {65, 127, 100}, {128, 256, 512}, {3, 5, 2048}};

// Every combination of transposed operands, with a bias where there can be one.
template <class T, class To>
void products(runtime::DeviceMemory& device, Lane lane, bool vendor_must_offer) {
  for (const Shape& s : kShapes) {
    for (int flips = 0; flips < 4; ++flips) {
      const bool ta = flips & 1, tb = flips & 2, has_bias = std::is_same_v<T, To> && flips != 1;
      const OnDevice<T> a(device, s.m * s.k, 1), b(device, s.n * s.k, 2), bias(device, s.n, 3);
      const OnDevice<To> c(device, s.m * s.n, 4);
      const Mat<const T> am = ta ? a.mat(s.k, s.m) : a.mat(s.m, s.k), bm = tb ? b.mat(s.n, s.k) : b.mat(s.k, s.n);
      const kernels::Vec<const T> add{has_bias ? bias.data() : nullptr, has_bias ? s.n : 0};
      if (vendor_must_offer) {
        const kernels::GemmCall<T, To> call{ta, tb, am, bm, c.mat(s.m, s.n), 0, add};
        EXPECT_TRUE(lane.device->vendor_gemm(kernels::by_contract(lane), call, false))
            << s.m << " x " << s.n << " x " << s.k << ", flips " << flips;
      }
      kernels::gemm<T, To>(lane, ta ? Trans::yes : Trans::no, tb ? Trans::yes : Trans::no, am, bm, c.mat(s.m, s.n), 0,
                           add);
    }
  }
}

void sums(runtime::DeviceMemory& device, Lane lane) {
  const OnDevice<float> first(device, 3000, 1), second(device, 3000, 2), third(device, 3000, 3), out(device, 3000, 4);
  const kernels::TreePart parts[] = {{{1, 0}, first.data(), 0}, {{0, 2}, second.data(), 1}, {{0, 3}, third.data(), 2}};
  for (int owner = 0; owner < 3; ++owner) kernels::tree_sum(lane, parts, 3, 4, {out.data(), 3000}, 0.3f, owner);
  kernels::tree_sum(lane, parts, 3, 4, {first.data(), 3000}, 1.0f, 1);
}

void all_within_bounds(runtime::DeviceMemory& device, bool tf32, bool vendor_must_offer) {
  kernels::FastArithmetic fast({.tf32 = tf32, .slip = kernels::FastSlip::none});
  runtime::NumericAudit audit(fast, tf32);
  Lane lane = device.lane();
  lane.arithmetic = &audit;
  products<float, float>(device, lane, vendor_must_offer);
  products<bf16, bf16>(device, lane, vendor_must_offer);
  products<bf16, float>(device, lane, vendor_must_offer);
  products<fp16, fp16>(device, lane, vendor_must_offer);
  products<fp16, float>(device, lane, vendor_must_offer);
  sums(device, lane);
  const runtime::AuditReport& seen = audit.report();
  EXPECT_FALSE(seen.first) << describe(*seen.first);
  EXPECT_EQ(seen.products.ops, 5 * std::size(kShapes) * 4);
  EXPECT_EQ(seen.sums.ops, 4u);
  EXPECT_GT(seen.products.worst, 0);
}

TEST(FastOnADevice, KeepsItsBoundsOnTheEmulatedOne) {
  sim::EmulatedMemory memory(std::size_t(64) << 20);
  for (const bool tf32 : {false, true}) all_within_bounds(memory, tf32, false);
}

// What is used of cuBLASLt is in the library that the header promises. Needs no GPU, but a library.
TEST(FastOnADevice, TheVendorsLibraryHasWhatIsUsed) {
  const std::string problem = runtime::vendor_products_problem();
  if (problem.starts_with("this program was built without") || problem.starts_with("cuBLASLt cannot be loaded"))
    GTEST_SKIP() << problem;
  EXPECT_EQ(problem, "");
}

TEST(FastOnADeviceGpu, KeepsItsBounds) {
  for (const std::string& problem : {runtime::cuda_problem(), runtime::vendor_products_problem()})
    if (!problem.empty()) GTEST_SKIP() << problem;
  runtime::CudaMemory memory;
  for (const bool tf32 : {false, true}) all_within_bounds(memory, tf32, true);
}

}  // namespace
}  // namespace seeksim::test
