// One rank without a world: queues run closures at once, waits return at once, and the control plane has one member.
// For tests of the trainer's arithmetic, where a simulator would only be in the way.
#pragma once

#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "runtime/seams/rank.h"
#include "tests/support/empty_storage.h"

namespace seeksim::test {

using namespace seeksim::runtime;

class InlineQueue final : public Queue {
 public:
  void enqueue_kernel(const Op& op, Cost, const Closure& closure, std::span<const Range> ranges) override {
    ++launches;
    if (keep) ops.push_back(op);
    for (const Range& r : ranges) {
      if (r.lo > r.hi || r.hi > (r.buffer == nullptr ? 0 : r.buffer->bytes))
        throw std::logic_error("a launch names bytes that are not there: " + describe(op));
    }
    Closure copy = closure;
    copy(kernels::Lane{});
  }
  void enqueue_activity(const Op&, Activity& activity, std::span<const Range>) override { activity.start(); }
  void activity_done(Activity&) override {}
  Event record() override { return {}; }
  void wait(const Event&) override {}
  bool done(const Event&) const override { return true; }
  const char* name() const override { return "inline"; }
  int launches = 0;
  bool keep = false;
  std::vector<Op> ops;  // every launch, if they are kept
};

class InlineDevice final : public Device {
 public:
  BufferPtr allocate(std::size_t bytes, MemoryTag tag, const char* name) override {
    if (total_ + bytes > capacity_bytes) throw SeamError(ErrorKind::out_of_memory, Op{}, name);
    auto* buffer = new Buffer;
    buffer->data = static_cast<std::byte*>(std::aligned_alloc(64, (bytes + 63) / 64 * 64));
    for (std::size_t i = 0; i + 4 <= bytes; i += 4) std::memcpy(buffer->data + i, &kPoisonFresh, 4);
    buffer->bytes = bytes;
    buffer->tag = tag;
    buffer->name = name;
    total_ += bytes;
    return BufferPtr(buffer, BufferDeleter{this});
  }
  BufferPtr allocate_in(Space space, std::size_t bytes, MemoryTag tag, const char* name) override {
    BufferPtr buffer = allocate(bytes, tag, name);
    buffer->space = space;
    return buffer;
  }
  void release(Buffer* buffer) override {
    total_ -= buffer->bytes;
    std::free(buffer->data);
    delete buffer;
  }
  Queue& compute_queue() override { return queue; }
  Queue& communication_queue() override { return queue; }
  Queue& copy_queue() override { return queue; }
  Queue& host_queue() override { return queue; }
  Queue& storage_queue() override { return queue; }
  Queue& message_queue(MessageQueue) override { return queue; }
  TimeNs duration(const Op&, Cost) const override { return 0; }
  WaitResult wait(const Event&, TimeNs, std::uint32_t) override { return WaitResult::done; }
  void drain() override {}
  void host_touches(const Op&, const Range&) override {}
  std::size_t capacity(Space) const override { return capacity_bytes; }
  MemoryUse use(MemoryTag, Space) const override { return {total_, total_}; }
  MemoryUse use_total(Space = Space::device) const override { return {total_, total_}; }
  InlineQueue queue;
  std::size_t capacity_bytes = std::size_t(8) << 30;

 private:
  std::size_t total_ = 0;
};

class InlineTransport final : public Transport {
 public:
  Comm create(const Op&, const CommSpec&, TimeNs) override { return {++handles_}; }
  CommResult exchange(Queue&, Comm, const Op&, std::span<const Piece>, DiesAt) override { return CommResult::internal; }
  bool has_native(Comm, const Op&) const override { return false; }
  CommResult tree_all_reduce(Queue&, Comm, const Op&, const TreeReduce&) override { return CommResult::internal; }
  CommResult async_error(Comm) override { return CommResult::success; }
  CommResult revoke(Comm) override { return CommResult::success; }
  CommResult abort(std::span<const Comm>) override { return CommResult::success; }
  CommResult finalize(Comm) override { return CommResult::success; }
  CommResult destroy(Comm) override { return CommResult::success; }
  Comm split(const Op&, Comm, int, int, TimeNs) override { return {}; }
  Comm shrink(const Op&, Comm, std::span<const int>, TimeNs) override { return {}; }
  Unmatched unmatched(Comm) const override { return {}; }

 private:
  std::uint32_t handles_ = 0;
};

class ZeroClock final : public Clock {
 public:
  TimeNs now() const override { return 0; }
  void sleep_until(TimeNs) override {}
};

class LonelyControl final : public ControlPlane {
 public:
  std::uint32_t epoch() const override { return epoch_; }
  std::vector<int> members() const override { return {0}; }
  void revoke(std::uint32_t, const Op&, ErrorKind) override {}
  bool revoked(std::uint32_t) const override { return false; }
  Agreement agree(const Op&, std::uint32_t epoch, const Ballot& ballot, TimeNs) override {
    Agreement agreement;
    agreement.epoch = epoch;
    agreement.members = {0};
    agreement.ballots = {ballot};
    return agreement;
  }
  void enter_epoch(std::uint32_t epoch, std::span<const int>) override { epoch_ = epoch; }

 private:
  std::uint32_t epoch_ = 0;
};

struct OneRank {
  ZeroClock clock;
  InlineDevice device;
  InlineTransport transport;
  EmptyStorage storage;
  LonelyControl control;
  Recorder recorder;
  Rank rank{0, 1, clock, device, transport, storage, control, recorder};
};

}  // namespace seeksim::test
