// A heap of virtual-time timers. An entry whose target says that it is no longer live is dropped without moving the
// clock, so that an armed timer never has to be taken back.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/seams/time.h"
#include "sim/steering.h"

namespace seeksim::sim {

using runtime::TimeNs;

class TimerTarget;

struct Timer {
  TimeNs when = 0;
  std::uint64_t number = 0;  // equal times fire in the order in which they were armed
  TimerTarget* target = nullptr;
  std::uint64_t arg = 0;
};

// A timer whose time has come in an untimed world, where others may go first.
struct DueTimer {
  Timer timer;
  std::uint64_t process = 0;  // of several of one process the one that was armed first comes next
  Object object = {};         // what it would have changed, even if it is no longer live by then; none: nothing shared
  Access how = Access::write;
};

class TimerTarget {
 public:
  virtual bool live(const Timer& timer) = 0;
  virtual void fire(const Timer& timer) = 0;
  // It fires next: asks for the memory that this will touch.
  virtual void fetch_for_fire() const {}
  // Asked once, of a live one.
  virtual DueTimer due(const Timer& timer) { return {timer, arrival(Arrival::kernel, -1, timer.number)}; }

 protected:
  ~TimerTarget() = default;
};

// Four children a node: half as deep as a binary heap, and the children of a node share two cache lines.
class TimerHeap {
 public:
  bool empty() const { return heap_.empty(); }
  const Timer& top() const { return heap_.front(); }
  // Asks for the memory of the timers that fire next.
  void fetch() const {
    for (std::size_t i = 1; i < heap_.size() && i < 5; ++i)
      __builtin_prefetch(reinterpret_cast<const char*>(heap_[i].target));
    if (!heap_.empty()) heap_.front().target->fetch_for_fire();
  }

  void push(const Timer& timer) {
    std::size_t i = heap_.size();
    heap_.push_back(timer);
    while (i > 0) {
      const std::size_t parent = (i - 1) / 4;
      if (!before(timer, heap_[parent])) break;
      heap_[i] = heap_[parent];
      i = parent;
    }
    heap_[i] = timer;
  }

  Timer pop() {
    const Timer top = heap_.front();
    const Timer last = heap_.back();
    heap_.pop_back();
    if (!heap_.empty()) sink(last);
    return top;
  }

 private:
  static bool before(const Timer& a, const Timer& b) {
    return a.when != b.when ? a.when < b.when : a.number < b.number;
  }

  void sink(const Timer& timer) {
    const std::size_t n = heap_.size();
    std::size_t i = 0;
    for (;;) {
      const std::size_t first = 4 * i + 1;
      if (first >= n) break;
      std::size_t least = first;
      for (std::size_t c = first + 1; c < n && c < first + 4; ++c)
        if (before(heap_[c], heap_[least])) least = c;
      if (!before(heap_[least], timer)) break;
      heap_[i] = heap_[least];
      i = least;
    }
    heap_[i] = timer;
  }

  std::vector<Timer> heap_;
};

}  // namespace seeksim::sim
