// The FIFO behind SteppedQueue: items laid out one after another in a ring, started and finished in order.
#include "runtime/host/stepped_queue.h"

#include <algorithm>
#include <cstring>
#include <exception>

#include "kernels/check.h"

namespace seeksim::runtime {
namespace {

constexpr std::size_t kAlign = 16;
constexpr std::size_t kSmallestRing = 512;
// A closure is stored without the unused end of its storage.
constexpr std::size_t kClosureHead = sizeof(Closure) - Closure::kBytesMax;
static_assert(std::is_trivially_copyable_v<Closure> && std::is_trivially_copyable_v<Op>);

constexpr std::size_t aligned(std::size_t bytes) { return (bytes + kAlign - 1) / kAlign * kAlign; }

}  // namespace

// ---- ItemRing ----------------------------------------------------------------------------------------------------

std::byte* ItemRing::push(std::size_t bytes) {
  if (count_ == 0) head_ = tail_ = wrap_ = 0;
  const bool wrapped = wrap_ != 0;
  if (wrapped ? tail_ + bytes >= head_ : tail_ + bytes > capacity_) {
    if (!wrapped && bytes < head_) {
      wrap_ = tail_;
      tail_ = 0;
    } else {
      grow(bytes);
    }
  }
  std::byte* place = data_.get() + tail_;
  tail_ += std::uint32_t(bytes);
  ++count_;
  return place;
}

void ItemRing::pop() {
  std::uint32_t bytes = 0;
  std::memcpy(&bytes, front(), sizeof bytes);
  head_ += bytes;
  --count_;
  if (wrap_ != 0 && head_ == wrap_) head_ = wrap_ = 0;
}

void ItemRing::grow(std::size_t bytes) {
  const std::size_t first = wrap_ != 0 ? wrap_ - head_ : tail_ - head_;
  const std::size_t second = wrap_ != 0 ? tail_ : 0;
  const std::size_t capacity = std::max({kSmallestRing, std::size_t(capacity_) * 2, aligned(first + second + bytes)});
  SEEKSIM_CHECK(capacity < (std::size_t(1) << 31), "a queue holds %zu bytes of pending work", capacity);
  auto data = std::make_unique_for_overwrite<std::byte[]>(capacity);
  if (first > 0) std::memcpy(data.get(), data_.get() + head_, first);
  if (second > 0) std::memcpy(data.get() + first, data_.get(), second);
  data_ = std::move(data);
  capacity_ = std::uint32_t(capacity);
  head_ = wrap_ = 0;
  tail_ = std::uint32_t(first + second);
}

void ItemRing::clear() { head_ = tail_ = wrap_ = count_ = 0; }

// ---- items -------------------------------------------------------------------------------------------------------

// Behind a kernel's item: its Op, its cost, its ranges, its closure.
struct SteppedQueue::Item {
  enum class Kind : std::uint8_t { kernel, activity, wait };
  std::uint32_t bytes;
  Kind kind;
  std::uint16_t range_count;
  union {
    Activity* activity;
    Event event;
  };
};

namespace {
struct KernelHead {
  Op op;
  Cost cost;
};
constexpr std::size_t kItem = 32;
constexpr std::size_t kKernel = kItem + aligned(sizeof(KernelHead));

KernelHead& kernel_of(std::byte* item) { return *reinterpret_cast<KernelHead*>(item + kItem); }
Closure& closure_of(std::byte* item, std::size_t ranges) {
  return *reinterpret_cast<Closure*>(item + kKernel + aligned(ranges * sizeof(Range)));
}
}  // namespace

// ---- the host's side ---------------------------------------------------------------------------------------------

void SteppedQueue::enqueued() {
  ++enqueued_;
  if (items_.count() == 1) ready();
}

void SteppedQueue::ready() {
  if (ready_ || stepping_) return;
  ready_ = true;
  executor_.make_ready(*this);
}

void SteppedQueue::enqueue_kernel(const Op& op, Cost cost, const Closure& closure, std::span<const Range> ranges) {
  static_assert(sizeof(Item) <= kItem);
  if (watcher_ != nullptr) watcher_->enqueued({this, enqueued_ + 1}, op, ranges);
  // A launch that is skipped keeps nothing of what it would have done.
  if (skips_kernels_) ranges = {};
  const std::size_t closure_bytes = kClosureHead + closure.bytes();
  const std::size_t bytes = kKernel + (skips_kernels_ ? 0 : aligned(ranges.size_bytes()) + aligned(closure_bytes));
  std::byte* place = items_.push(bytes);
  new (place) Item{std::uint32_t(bytes), Item::Kind::kernel, std::uint16_t(ranges.size()), {nullptr}};
  new (place + kItem) KernelHead{op, cost};
  if (!ranges.empty()) std::memcpy(place + kKernel, ranges.data(), ranges.size_bytes());
  if (!skips_kernels_) std::memcpy(static_cast<void*>(&closure_of(place, ranges.size())), &closure, closure_bytes);
  enqueued();
}

void SteppedQueue::enqueue_activity(const Op& op, Activity& activity, std::span<const Range> ranges) {
  if (watcher_ != nullptr) watcher_->enqueued({this, enqueued_ + 1}, op, ranges);
  new (items_.push(kItem)) Item{kItem, Item::Kind::activity, 0, {&activity}};
  enqueued();
}

void SteppedQueue::wait(const Event& event) {
  if (watcher_ != nullptr) watcher_->queue_waits(record(), event);
  if (event.queue == nullptr || event.queue == this || event.queue->done(event)) return;
  Item* item = new (items_.push(kItem)) Item{kItem, Item::Kind::wait, 0, {nullptr}};
  item->event = event;
  enqueued();
}

// ---- the loop's side ---------------------------------------------------------------------------------------------

void SteppedQueue::step() {
  ready_ = false;
  stepping_ = true;
  while (!items_.empty() && !running_) {
    running_ = true;
    if (start_front()) finish_front();
  }
  stepping_ = false;
}

bool SteppedQueue::start_front() {
  Item& item = front_item();
  switch (item.kind) {
    case Item::Kind::activity:
      item.activity->start();  // may report activity_done at once, which finishes it
      return false;
    case Item::Kind::wait: {
      if (item.event.queue->done(item.event)) return true;
      if (auto* const queue = dynamic_cast<SteppedQueue*>(item.event.queue))
        queue->waiters_.push_back({item.event.place, this});
      else
        executor_.wait_elsewhere(*this);
      return false;
    }
    case Item::Kind::kernel:
      break;
  }
  const KernelHead& kernel = kernel_of(items_.front());
  const TimeNs duration = executor_.duration(*this, kernel.op, kernel.cost);
  if (duration > 0) {
    executor_.step_after(*this, duration);
    return false;
  }
  run_kernel();
  return true;
}

void SteppedQueue::run_kernel() {
  if (skips_kernels_) return;
  std::byte* item = items_.front();
  if (listener_ != nullptr) listener_->at(kernel_of(item).op);
  try {
    closure_of(item, front_item().range_count)(lane_);
  } catch (const std::exception& e) {
    executor_.kernel_failed(*this, kernel_of(item).op, e.what());
  }
}

void SteppedQueue::look_again() {
  if (items_.empty() || !running_ || front_item().kind != Item::Kind::wait) return;
  if (!front_item().event.queue->done(front_item().event)) return executor_.wait_elsewhere(*this);
  running_ = false;  // the wait is started anew, and found done
  ready();
}

void Executor::wait_elsewhere(SteppedQueue& queue) {
  SEEKSIM_CHECK(false, "queue '%s' of rank %d waits for a queue that no loop here steps", queue.name(), queue.rank());
}

void SteppedQueue::kernel_due() {
  SEEKSIM_CHECK(running_ && front_item().kind == Item::Kind::kernel, "queue '%s' of rank %d runs no kernel", name_,
                rank_);
  run_kernel();
  finish_front();
}

void SteppedQueue::activity_done(Activity& activity) {
  SEEKSIM_CHECK(running_ && front_item().kind == Item::Kind::activity && front_item().activity == &activity,
                "queue '%s' of rank %d: an activity ended that is not at the front", name_, rank_);
  finish_front();
}

void SteppedQueue::finish_front() {
  items_.pop();
  running_ = false;
  ++completed_;
  if (watcher_ != nullptr) watcher_->completed({this, completed_});
  if (completed_ >= host_place_) {
    host_place_ = kNobody;
    executor_.host_place_reached(*this);
  }
  for (std::size_t i = 0; i < waiters_.size();) {
    if (waiters_[i].place > completed_) {
      ++i;
      continue;
    }
    SteppedQueue* queue = waiters_[i].queue;
    waiters_[i] = waiters_.back();
    waiters_.pop_back();
    queue->running_ = false;  // its wait is started anew, and found done
    queue->ready();
  }
  if (!items_.empty()) ready();
}

void SteppedQueue::abandon() {
  items_.clear();
  waiters_.clear();
  running_ = false;
  host_place_ = kNobody;
  ++generation_;
  completed_ = enqueued_;
}

const Op* SteppedQueue::front_kernel() const {
  if (items_.empty() || front_item().kind != Item::Kind::kernel) return nullptr;
  return &kernel_of(const_cast<std::byte*>(items_.front())).op;
}

Activity* SteppedQueue::front_activity() const {
  return items_.empty() || front_item().kind != Item::Kind::activity ? nullptr : front_item().activity;
}

Event SteppedQueue::front_wait() const {
  return items_.empty() || front_item().kind != Item::Kind::wait ? Event{} : front_item().event;
}

}  // namespace seeksim::runtime
