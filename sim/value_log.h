// ValueLog: digests of what every operation of a rank wrote, in the order of completion. Comparing two runs' logs finds
// the first operation that left other bits; the bits of that one can be kept.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "runtime/host/access_watcher.h"
#include "runtime/seams/seams.h"

namespace seeksim::sim {

struct ValueLogPlan {
  bool on = false;
  std::int64_t first_step = -1;  // log from this step on; operations outside steps belong to -1
  int keep_rank = -1;            // of this rank keep the bytes
  std::uint64_t keep_entry = 0;  //   of this entry
};

struct ValueEntry {
  runtime::Op op;
  const char* buffer = "";
  runtime::MemoryTag tag = runtime::MemoryTag::scratch;
  runtime::ElementType type = runtime::ElementType::bytes;
  std::size_t lo = 0, hi = 0;  // bytes of the buffer
  std::uint64_t digest = 0;
  runtime::TimeNs at_ns = 0;
  bool read = false;  // an input, digested when the operation completed
};

// Stands before the race detector, where there is one, and passes everything on.
class ValueLog final : public runtime::AccessWatcher {
 public:
  ValueLog(const ValueLogPlan& plan, int rank, runtime::AccessWatcher* next, const runtime::Clock& clock)
      : plan_(plan), rank_(rank), next_(next), clock_(clock) {}

  const std::vector<ValueEntry>& entries() const { return entries_; }
  const std::vector<std::byte>& kept() const { return kept_; }

  void enqueued(const runtime::Event& through, const runtime::Op& op, std::span<const runtime::Range> ranges) override;
  void completed(const runtime::Event& through) override;
  void queue_waits(const runtime::Event& place, const runtime::Event& event) override {
    if (next_ != nullptr) next_->queue_waits(place, event);
  }
  void host_waited(const runtime::Event& event) override {
    if (next_ != nullptr) next_->host_waited(event);
  }
  void host_drained() override {
    if (next_ != nullptr) next_->host_drained();
  }
  void host_touches(const runtime::Op& op, const runtime::Range& range) override;
  void allocated(const runtime::Buffer& buffer) override {
    if (next_ != nullptr) next_->allocated(buffer);
  }
  void released(const runtime::Buffer& buffer) override;

 private:
  struct Pending {
    std::uint64_t place = 0;
    runtime::Op op;
    std::vector<runtime::Range> ranges;
  };
  void log(const runtime::Op& op, const runtime::Range& range);

  ValueLogPlan plan_;
  int rank_;
  runtime::AccessWatcher* next_;
  const runtime::Clock& clock_;
  std::map<const runtime::Queue*, std::deque<Pending>> pending_;
  std::vector<ValueEntry> entries_;
  std::vector<std::byte> kept_;
};

}  // namespace seeksim::sim
