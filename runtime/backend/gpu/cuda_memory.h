// CudaMemory: the memory of one GPU and one stream over it. What simulated ranks that share a GPU compute comes one
// after the other on that stream, in the order of virtual time.
#pragma once

#include <memory>
#include <string>

#include "runtime/host/device_memory.h"

namespace seeksim::runtime {

// Why no GPU can be used here; empty: one can.
std::string cuda_problem();
// Why there are no vendor's products, for `fast` arithmetic on a GPU; empty: there are.
std::string vendor_products_problem();
// How many are visible to this process; 0 where there are none, or no CUDA.
int gpu_count();
// The GPU of the n-th process of a machine: several processes share one where there are fewer.
int visible_gpu(int n);
// What tells that GPU from all others, "GPU-" and 32 hexadecimal digits; empty where it does not answer.
std::string gpu_identity(int n);

// What that GPU computes at most in fp32, floating-point operations a second, a fused multiply-add counting as two; 0
// where it does not answer.
double gpu_peak_flops(int n);

class CudaMemory final : public DeviceMemory {
 public:
  // locks: pinned memory is really locked, so that copies from and to it take place later, in the order of the lane.
  // Ranks that are simulated cannot have that: their host reads it as soon as virtual time says so. Throws
  // std::runtime_error.
  explicit CudaMemory(int ordinal = 0, bool locks = false);
  ~CudaMemory() override;
  CudaMemory(const CudaMemory&) = delete;
  CudaMemory& operator=(const CudaMemory&) = delete;

  const char* name() const override { return name_.c_str(); }
  std::byte* allocate(std::size_t bytes) override;
  void release(std::byte* data) override;
  std::byte* allocate_pinned(std::size_t bytes) override;
  void release_pinned(std::byte* data) override;
  kernels::Lane lane() const override { return lane_; }

 private:
  std::string name_;
  bool locks_ = false;
  kernels::Lane lane_;
};

}  // namespace seeksim::runtime
