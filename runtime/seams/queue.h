// Queues with CUDA's stream semantics: what is enqueued runs in order, later than the host's call, and the host learns
// of it only through events. Shapes and rules follow measured failures (docs/architecture.md):
//   closures never block, never touch queues and are trivially copyable; an event is a place in a FIFO; only the
//   executor's loop steps queues and moves the clock; abort completes what is pending in order, scribbling on what it
//   would write.
#pragma once

#include <cstring>
#include <initializer_list>
#include <span>
#include <string>
#include <type_traits>

#include "runtime/seams/buffer.h"
#include "runtime/seams/op.h"
#include "runtime/seams/time.h"

namespace seeksim::runtime {

class Queue;

// What a launch costs a device: the simulator's model turns it into virtual time.
struct Cost {
  double flops = 0;
  double bytes = 0;
};

// A place in a queue's FIFO. Default-constructed: already done.
struct Event {
  Queue* queue = nullptr;
  std::uint64_t place = 0;
};

// A trivially copyable closure, stored by value like the arguments of a GPU kernel.
class Closure {
 public:
  static constexpr std::size_t kBytesMax = 320;
  template <class F>
  explicit Closure(const F& f) : call_(&call<F>), bytes_(sizeof(F)) {
    static_assert(std::is_trivially_copyable_v<F>, "a closure must own nothing: capture views and numbers by value");
    static_assert(sizeof(F) <= kBytesMax, "closure too large: capture fewer values");
    std::memcpy(storage_, &f, sizeof(F));
  }
  // Where its kernels compute is the queue's to say.
  void operator()(kernels::Lane lane) { call_(storage_, lane); }
  std::size_t bytes() const { return bytes_; }

 private:
  template <class F>
  static void call(void* p, kernels::Lane lane) {
    if constexpr (std::is_invocable_v<F&, kernels::Lane>)
      (*static_cast<F*>(p))(lane);
    else
      (*static_cast<F*>(p))();
  }

  void (*call_)(void*, kernels::Lane);
  std::size_t bytes_;
  alignas(16) std::byte storage_[kBytesMax];
};

// A piece of work that a transport puts into a queue: an exchange, a native collective. Owned by its transport.
class Activity {
 public:
  virtual ~Activity() = default;
  // The queue has reached it. It calls Queue::activity_done when it is over, now or later.
  virtual void start() = 0;
};

class Queue {
 public:
  virtual ~Queue() = default;

  // kernel(Lane, span of each view...): `q.launch(op, cost, [](Lane l, Mat<const float> x, Mat<float> y) {...}, x, y)`.
  // The kernel may capture numbers; what it touches comes in as views only.
  template <class Kernel, class... Views>
  void launch(const Op& op, Cost cost, Kernel kernel, Views... views) {
    const Range ranges[] = {views.range()..., Range{}};
    auto call = [kernel, ... spans = views.get()](kernels::Lane lane) mutable { kernel(lane, spans...); };
    enqueue_kernel(op, cost, Closure(call), std::span<const Range>(ranges, sizeof...(Views)));
  }

  virtual void enqueue_kernel(const Op& op, Cost cost, const Closure& closure, std::span<const Range> ranges) = 0;
  // For transports. ranges: everything the activity may read or write.
  virtual void enqueue_activity(const Op& op, Activity& activity, std::span<const Range> ranges) = 0;
  // The activity at the front is over, well or not: as on a CUDA stream, a failure shows on the communicator, not here.
  virtual void activity_done(Activity& activity) = 0;

  virtual Event record() = 0;
  virtual void wait(const Event& event) = 0;  // later work of this queue starts after the event; the host goes on
  virtual bool done(const Event& event) const = 0;
  virtual const char* name() const = 0;
  // The queue that a device made, where this one wraps it: what a transport puts its activities into.
  virtual Queue& underlying() { return *this; }
};

}  // namespace seeksim::runtime
