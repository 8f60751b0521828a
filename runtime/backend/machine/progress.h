// ProgressLoop: what a real rank's host does while it waits. One thread drives everything that moves by itself
// elsewhere: the device's queues, the transport's messages, the control plane's frames. A rank that waits for long
// gives the processor to others, since there may be more ranks than cores.
#pragma once

#include <vector>

#include "runtime/seams/seams.h"

namespace seeksim::runtime {

class Poller {
 public:
  virtual ~Poller() = default;
  virtual bool poll() = 0;  // does what can be done without waiting; true: something moved
};

class ProgressLoop {
 public:
  explicit ProgressLoop(const Clock& wall) : wall_(wall) {}
  ProgressLoop(const ProgressLoop&) = delete;
  ProgressLoop& operator=(const ProgressLoop&) = delete;

  void add(Poller& poller) { pollers_.push_back(&poller); }
  // A poller leaves before it is destroyed: destructors that run later may still turn the loop.
  void remove(const Poller& poller) { std::erase(pollers_, &poller); }
  TimeNs now() const { return wall_.now(); }
  // One round, and a rest where nothing has moved for a while.
  void turn();
  // Until over() or the deadline. False: the deadline came first.
  template <class Over>
  bool until(TimeNs deadline, Over over) {
    while (!over()) {
      if (now() >= deadline) return false;
      turn();
    }
    return true;
  }

 private:
  const Clock& wall_;
  std::vector<Poller*> pollers_;
  int idle_ = 0;  // rounds in a row in which nothing moved
};

// A rank's clock: a rank that sleeps drives the loop meanwhile.
class DrivenClock final : public Clock {
 public:
  DrivenClock(const Clock& wall, ProgressLoop& loop) : wall_(wall), loop_(loop) {}
  TimeNs now() const override { return wall_.now(); }
  void sleep_until(TimeNs t) override {
    loop_.until(t, [] { return false; });
  }

 private:
  const Clock& wall_;
  ProgressLoop& loop_;
};

// What one part of a rank must tell the others.
struct Signals {
  std::int64_t revoked = -1;  // highest epoch of which this rank has heard that it is revoked
  bool alarm = false;         // a communicator failed; the next wait ends at once, so that the error is looked at
  bool fenced = false;        // the others have declared this rank dead
};

}  // namespace seeksim::runtime
