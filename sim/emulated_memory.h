// EmulatedMemory: the memory of a GPU that is not there. Kernels are those for GPUs, run on the host (kernels/cuda);
// the memory is out of everybody's reach but while a kernel or a copy runs, so that host code that touches a tensor
// directly, as it could not on a GPU, ends in a fault at once.
#pragma once

#include <cstddef>
#include <map>

#include "kernels/cuda/emulated.h"
#include "runtime/host/device_memory.h"

namespace seeksim::sim {

class EmulatedMemory final : public runtime::DeviceMemory, private kernels::Emulation {
 public:
  explicit EmulatedMemory(std::size_t capacity_bytes = std::size_t(16) << 30);  // of addresses; memory is taken as used
  ~EmulatedMemory() override;
  EmulatedMemory(const EmulatedMemory&) = delete;
  EmulatedMemory& operator=(const EmulatedMemory&) = delete;

  const char* name() const override { return "the emulated device"; }
  std::byte* allocate(std::size_t bytes) override;
  void release(std::byte* data) override;
  std::byte* allocate_pinned(std::size_t bytes) override;
  void release_pinned(std::byte* data) override;
  kernels::Lane lane() const override;

 private:
  void enter() override;
  void leave() override;
  void protect(int access);

  std::byte* base_ = nullptr;
  std::size_t capacity_;
  std::size_t end_ = 0;                      // of what was ever handed out
  std::map<std::size_t, std::size_t> used_;  // place -> size
  int inside_ = 0;                           // kernels and copies that are running
};

}  // namespace seeksim::sim
