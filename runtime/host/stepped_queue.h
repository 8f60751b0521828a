// SteppedQueue: the Queue of ranks that compute on a host, a FIFO that a loop steps: the simulator's loop in virtual
// time, a progress loop on MPI. CUDA has streams instead. The code is the same, so that what the simulator proves about
// order, abort and events holds on processes too.
//
// Rules (each was broken once on a prototype): only the executor's loop steps queues; closures never block and never
// touch a queue; an event is a place in the FIFO; abort lets the FIFO run on in order, it never clears it.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "runtime/host/access_watcher.h"
#include "runtime/seams/queue.h"

namespace seeksim::runtime {

class SteppedQueue;

// Told of each launch just before its kernels run.
class LaunchListener {
 public:
  virtual ~LaunchListener() = default;
  virtual void at(const Op& op) = 0;
};

// What a SteppedQueue needs of the world around it.
class Executor {
 public:
  virtual ~Executor() = default;
  // Call queue.step() from the loop, never from inside this call.
  virtual void make_ready(SteppedQueue& queue) = 0;
  // Call queue.kernel_due() from the loop after `duration`. Not called for durations of zero.
  virtual void step_after(SteppedQueue& queue, TimeNs duration) = 0;
  // How long a launch takes that starts now.
  virtual TimeNs duration(const SteppedQueue& queue, const Op& op, Cost cost) = 0;
  // The place that the host asked for with wake_host_at is reached.
  virtual void host_place_reached(SteppedQueue& queue) = 0;
  // The front waits for an event of a queue of another kind, a CUDA stream's: call queue.look_again() until it is over.
  virtual void wait_elsewhere(SteppedQueue& queue);
  // A kernel threw. What is enqueued behind it still runs, on garbage.
  virtual void kernel_failed(SteppedQueue& queue, const Op& op, std::string_view what) = 0;
};

// The memory of a FIFO of items of different sizes: one ring, grown by doubling, so that a warm queue allocates nothing
// and an idle one has no memory at all. Items are trivially copyable; growing moves them, so hold no pointer across
// push.
class ItemRing {
 public:
  std::byte* push(std::size_t bytes);  // bytes: a multiple of 16, which the item's first word must hold
  std::byte* front() { return data_.get() + head_; }
  const std::byte* front() const { return data_.get() + head_; }
  void pop();
  bool empty() const { return count_ == 0; }
  std::size_t count() const { return count_; }
  void clear();

 private:
  void grow(std::size_t bytes);

  std::unique_ptr<std::byte[]> data_;
  std::uint32_t capacity_ = 0;
  std::uint32_t head_ = 0;
  std::uint32_t tail_ = 0;
  std::uint32_t wrap_ = 0;  // where the items before the wrap end; 0: not wrapped
  std::uint32_t count_ = 0;
};

class SteppedQueue final : public Queue {
 public:
  SteppedQueue(Executor& executor, const char* name, int rank) : executor_(executor), name_(name), rank_(rank) {}
  SteppedQueue(const SteppedQueue&) = delete;
  SteppedQueue& operator=(const SteppedQueue&) = delete;

  void enqueue_kernel(const Op& op, Cost cost, const Closure& closure, std::span<const Range> ranges) override;
  // The activity keeps its ranges itself: it has to scribble on them when it is aborted.
  void enqueue_activity(const Op& op, Activity& activity, std::span<const Range> ranges) override;
  void activity_done(Activity& activity) override;
  Event record() override { return {this, enqueued_}; }
  void wait(const Event& event) override;  // of a queue of the same device
  bool done(const Event& event) const override { return completed_ >= event.place; }
  const char* name() const override { return name_; }

  // ---- for the executor
  void watch(AccessWatcher* watcher) { watcher_ = watcher; }
  void compute_on(kernels::Lane lane) { lane_ = lane; }  // of its launches; else the host computes them
  void announce_to(LaunchListener* listener) { listener_ = listener; }
  void skip_kernels() { skips_kernels_ = true; }  // launches take their time and do nothing: a run of shapes
  void step();                                    // starts what can start
  void look_again();                              // whether the wait at the front is over, of a queue of another kind
  void kernel_due();                              // the running kernel's time is over: its effects land now
  void wake_host_at(std::uint64_t place) { host_place_ = place; }
  void forget_host() { host_place_ = kNobody; }
  void abandon();  // the rank is dead: nothing that is pending ever happens
  bool idle() const { return items_.empty(); }
  std::size_t depth() const { return items_.count(); }           // launches, waits and events that are not over
  void fetch() const { __builtin_prefetch(items_.front(), 1); }  // asks for memory that will be needed soon
  int rank() const { return rank_; }
  std::uint32_t generation() const { return generation_; }  // of timers: those of an older one are stale

  // What stands at the front, for wait-for graphs. Null where it is no such thing.
  const Op* front_kernel() const;
  Activity* front_activity() const;
  Event front_wait() const;

 private:
  static constexpr std::uint64_t kNobody = std::numeric_limits<std::uint64_t>::max();
  struct Item;
  struct Waiter {
    std::uint64_t place;
    SteppedQueue* queue;
  };

  Item& front_item() { return *reinterpret_cast<Item*>(items_.front()); }
  const Item& front_item() const { return *reinterpret_cast<const Item*>(items_.front()); }
  void enqueued();
  bool start_front();  // true: over already
  void run_kernel();
  void finish_front();
  void ready();

  Executor& executor_;
  AccessWatcher* watcher_ = nullptr;
  LaunchListener* listener_ = nullptr;
  const char* name_;
  int rank_;
  kernels::Lane lane_;
  std::uint32_t generation_ = 0;
  std::uint64_t enqueued_ = 0;
  std::uint64_t completed_ = 0;
  std::uint64_t host_place_ = kNobody;  // a rank has one host, so one place is enough
  bool running_ = false;                // the front item has been started
  bool stepping_ = false;
  bool ready_ = false;  // the executor has been asked to step
  bool skips_kernels_ = false;
  ItemRing items_;
  std::vector<Waiter> waiters_;  // other queues
};

}  // namespace seeksim::runtime
