// A run whose values somebody looks at, each when the operation that touched it is over. Nothing of the run changes by
// it, and runs that nobody watches pay nothing.
#pragma once

#include <deque>
#include <map>
#include <span>
#include <vector>

#include "runtime/host/access_watcher.h"
#include "runtime/seams/seams.h"

namespace seeksim::harness {

class ValueSink {
 public:
  virtual ~ValueSink() = default;
  // ranges: all that the operation may have read or written, as its memory is now.
  virtual void completed(int rank, const runtime::Op& op, runtime::TimeNs at_ns,
                         std::span<const runtime::Range> ranges) = 0;
};

// Tells the sink of one rank's operations, in the order in which they end.
class ValueWatch final : public runtime::AccessWatcher {
 public:
  ValueWatch(ValueSink& sink, int rank, const runtime::Clock& clock) : sink_(sink), rank_(rank), clock_(clock) {}
  void enqueued(const runtime::Event& through, const runtime::Op& op, std::span<const runtime::Range> ranges) override;
  void completed(const runtime::Event& through) override;
  void queue_waits(const runtime::Event&, const runtime::Event&) override {}
  void host_waited(const runtime::Event&) override {}
  void host_drained() override {}
  void host_touches(const runtime::Op&, const runtime::Range&) override {}
  void allocated(const runtime::Buffer&) override {}
  void released(const runtime::Buffer& buffer) override;

 private:
  struct Pending {
    std::uint64_t place = 0;
    runtime::Op op;
    std::vector<runtime::Range> ranges;
  };
  ValueSink& sink_;
  int rank_;
  const runtime::Clock& clock_;
  std::map<const runtime::Queue*, std::deque<Pending>> pending_;
};

}  // namespace seeksim::harness
