#include "sim/emulated_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <new>
#include <stdexcept>

namespace seeksim::sim {
namespace {
constexpr std::size_t kPage = 4096;
constexpr std::align_val_t kPinnedAlignment{64};
}  // namespace

EmulatedMemory::EmulatedMemory(std::size_t capacity_bytes) : capacity_(capacity_bytes) {
  void* const at = ::mmap(nullptr, capacity_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) throw std::runtime_error("no address space for the emulated device's memory");
  base_ = static_cast<std::byte*>(at);
}

EmulatedMemory::~EmulatedMemory() { ::munmap(base_, capacity_); }

// The first gap that is large enough; whole pages, so that nothing lies beside anything.
std::byte* EmulatedMemory::allocate(std::size_t bytes) {
  const std::size_t size = std::max<std::size_t>((bytes + kPage - 1) / kPage, 1) * kPage;
  std::size_t place = 0;
  for (const auto& [at, taken] : used_) {
    if (place + size <= at) break;
    place = at + taken;
  }
  if (place + size > capacity_) return nullptr;
  used_.emplace(place, size);
  end_ = std::max(end_, place + size);
  return base_ + place;
}

void EmulatedMemory::release(std::byte* data) {
  const auto block = used_.find(std::size_t(data - base_));
  ::madvise(data, block->second, MADV_DONTNEED);
  used_.erase(block);
}

std::byte* EmulatedMemory::allocate_pinned(std::size_t bytes) {
  return static_cast<std::byte*>(::operator new(bytes, kPinnedAlignment));
}
void EmulatedMemory::release_pinned(std::byte* data) { ::operator delete(data, kPinnedAlignment); }

kernels::Lane EmulatedMemory::lane() const {
  kernels::Emulation* const stream = const_cast<EmulatedMemory*>(this);
  return {stream, &kernels::emulated_device()};
}

void EmulatedMemory::protect(int access) {
  if (end_ > 0 && ::mprotect(base_, end_, access) != 0)
    throw std::runtime_error("the emulated device's memory cannot be protected");
}
void EmulatedMemory::enter() {
  if (inside_++ == 0) protect(PROT_READ | PROT_WRITE);
}
void EmulatedMemory::leave() {
  if (--inside_ == 0) protect(PROT_NONE);
}

}  // namespace seeksim::sim
