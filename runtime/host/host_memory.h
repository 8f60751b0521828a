// HostMemory: the memory of a rank's device and of the host beside it: a ledger of each space with a capacity, fresh
// memory full of poison, and a place for what was released while pending work may still touch it. The device's is the
// host's too, unless a DeviceMemory says where it lies. The simulator's device and those of real processes share it.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "runtime/host/access_watcher.h"
#include "runtime/host/device_memory.h"
#include "runtime/seams/seams.h"

namespace seeksim::runtime {

using BytesByTag = std::array<std::size_t, std::size_t(MemoryTag::count_)>;

class HostMemory {
 public:
  struct Capacities {
    std::size_t device = 0, host = 0;
    std::size_t pinned = 0;  // of the host's, at most so much can be locked
  };

  // owner: to whom buffers go back. holds_values: false in a run of shapes, where memory is counted and not there.
  HostMemory(Device& owner, int rank, const Capacities& capacities, bool holds_values,
             DeviceMemory* on_device = nullptr);
  HostMemory(const HostMemory&) = delete;
  HostMemory& operator=(const HostMemory&) = delete;
  ~HostMemory() { bury_all(); }

  // Throws SeamError{out_of_memory} with what is in use.
  BufferPtr allocate(Space space, std::size_t bytes, MemoryTag tag, const char* name);
  // As with cudaFree, work that is pending may still touch the memory: unless `idle` it is kept until bury_all().
  void release(Buffer* buffer, bool idle);
  bool has_graves() const { return !graveyard_.empty(); }
  void bury_all();

  std::size_t capacity(Space space) const;
  MemoryUse use(MemoryTag tag, Space space) const { return ledger(space).by_tag[std::size_t(tag)]; }
  MemoryUse use_total(Space space) const { return ledger(space).total; }
  // What there was of each when the total was highest.
  const BytesByTag& at_peak(Space space) const { return ledger(space).at_peak; }
  void watch(AccessWatcher* watcher) { watcher_ = watcher; }  // null: no watcher

 private:
  struct Ledger {
    void add(MemoryTag tag, std::size_t bytes);
    std::array<MemoryUse, std::size_t(MemoryTag::count_)> by_tag{};
    MemoryUse total;
    BytesByTag at_peak{};
  };
  Ledger& ledger(Space space) { return ledgers_[std::size_t(space)]; }
  const Ledger& ledger(Space space) const { return ledgers_[std::size_t(space)]; }
  std::size_t free_bytes(Space space) const;
  std::string map(Space space) const;
  void provide(Buffer& buffer);
  void bury(Buffer* buffer);

  Device& owner_;
  int rank_;
  Capacities capacities_;
  bool holds_values_;
  DeviceMemory* on_device_;  // null: the device's memory is the host's
  AccessWatcher* watcher_ = nullptr;
  std::vector<Buffer*> live_;       // of all spaces, in order of allocation
  std::vector<Buffer*> graveyard_;  // released while work that may touch them was pending
  std::array<Ledger, std::size_t(Space::count_)> ledgers_;
  std::uint64_t allocations_ = 0;
};

}  // namespace seeksim::runtime
