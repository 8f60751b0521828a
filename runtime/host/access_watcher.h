// AccessWatcher: hears of every declared access to a device's memory and of everything that orders accesses, in the
// host's order. The simulator's race detector is one. Null: there is no watcher.
#pragma once

#include <span>

#include "runtime/seams/buffer.h"
#include "runtime/seams/op.h"
#include "runtime/seams/queue.h"

namespace seeksim::runtime {

class AccessWatcher {
 public:
  virtual ~AccessWatcher() = default;
  // A kernel or an activity of a transport goes into a queue. through: the event of its end; ranges: all that it may
  // read or write.
  virtual void enqueued(const Event& through, const Op& op, std::span<const Range> ranges) = 0;
  // All of a queue up to `through` is over: its effects are in memory, and nothing behind it has begun.
  virtual void completed(const Event& /*through*/) {}
  // What comes into a queue behind `place` starts after `event`.
  virtual void queue_waits(const Event& place, const Event& event) = 0;
  // The host has seen that `event` is done.
  virtual void host_waited(const Event& event) = 0;
  // The host has seen that every queue is empty.
  virtual void host_drained() = 0;
  // The host itself reads or writes memory of the device, now.
  virtual void host_touches(const Op& op, const Range& range) = 0;
  virtual void allocated(const Buffer& buffer) = 0;
  virtual void released(const Buffer& buffer) = 0;
};

}  // namespace seeksim::runtime
