#include "sim/emulated_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <new>
#include <stdexcept>

namespace seeksim::sim {
namespace {
constexpr std::size_t kPage = 4096;
constexpr std::size_t kHugePage = std::size_t(2) << 20;
constexpr std::align_val_t kPinnedAlignment{64};

// The next multiple of a unit.
std::size_t up_to(std::size_t bytes, std::size_t unit) { return (bytes + unit - 1) / unit * unit; }
}  // namespace

EmulatedMemory::EmulatedMemory(std::size_t capacity_bytes) : capacity_(capacity_bytes) {
  const std::size_t size = capacity_ + kHugePage;
  void* const at = ::mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) throw std::runtime_error("no address space for the emulated device's memory");
  const std::size_t before = (kHugePage - std::uintptr_t(at) % kHugePage) % kHugePage;
  base_ = static_cast<std::byte*>(at) + before;
  if (before > 0) ::munmap(at, before);
  ::munmap(base_ + capacity_, kHugePage - before);
  // Protecting costs time for each page, twice a kernel: with huge ones a sweep takes a quarter of the time.
  ::madvise(base_, capacity_, MADV_HUGEPAGE);
}

EmulatedMemory::~EmulatedMemory() { ::munmap(base_, capacity_); }

// The first gap that is large enough; whole pages, so that nothing lies beside anything.
std::byte* EmulatedMemory::allocate(std::size_t bytes) {
  const std::size_t size = up_to(std::max<std::size_t>(bytes, 1), kPage);
  std::size_t place = 0;
  for (const auto& [at, taken] : used_) {
    if (place + size <= at) break;
    place = at + taken;
  }
  if (place + size > capacity_) return nullptr;
  used_.emplace(place, size);
  end_ = std::max(end_, std::min(up_to(place + size, kHugePage), capacity_));
  return base_ + place;
}

void EmulatedMemory::release(std::byte* data) {
  const auto block = used_.find(std::size_t(data - base_));
  // Whole huge pages are given back. The rest keeps what was written, as a GPU's memory does.
  const std::size_t begin = up_to(block->first, kHugePage);
  const std::size_t end = (block->first + block->second) / kHugePage * kHugePage;
  if (begin < end) ::madvise(base_ + begin, end - begin, MADV_DONTNEED);
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
