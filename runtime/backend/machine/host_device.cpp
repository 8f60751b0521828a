#include "runtime/backend/machine/host_device.h"

#include <algorithm>

namespace seeksim::runtime {

HostDevice::HostDevice(ProgressLoop& loop, Signals& signals, int rank, const HostMemory::Capacities& capacities)
    : loop_(loop),
      signals_(signals),
      rank_(rank),
      memory_(*this, rank, capacities, true),
      communication_(*this, "communication queue", rank),
      compute_(*this, "compute queue", rank),
      copy_(*this, "copy queue", rank),
      on_host_(*this, "host queue", rank),
      on_storage_(*this, "storage queue", rank),
      queues_{&compute_, &communication_, &copy_, &on_host_, &on_storage_} {
  loop.add(*this);
}

HostDevice::~HostDevice() {
  loop_.remove(*this);
  for (SteppedQueue* queue : queues_) queue->abandon();
}

Queue& HostDevice::message_queue(MessageQueue which) {
  static constexpr std::array<const char*, std::size_t(MessageQueue::count_)> kNames = {
      "queue of sent activations", "queue of received activations", "queue of sent gradients",
      "queue of received gradients", "queue of tensor ways"};
  std::unique_ptr<SteppedQueue>& queue = messages_[std::size_t(which)];
  if (queue == nullptr) {
    queue = std::make_unique<SteppedQueue>(*this, kNames[std::size_t(which)], rank_);
    queues_.push_back(queue.get());
  }
  return *queue;
}

void HostDevice::compute_by(kernels::Arithmetic* arithmetic, LaunchListener* listener) {
  kernels::Lane lane;
  lane.arithmetic = arithmetic;
  for (SteppedQueue* queue : {&communication_, &compute_, &copy_}) {
    queue->compute_on(lane);
    queue->announce_to(listener);
  }
}

// ---- memory ------------------------------------------------------------------------------------------------------

BufferPtr HostDevice::allocate_in(Space space, std::size_t bytes, MemoryTag tag, const char* name) {
  empty_graveyard();
  return memory_.allocate(space, bytes, tag, name);
}

void HostDevice::release(Buffer* buffer) {
  empty_graveyard();
  memory_.release(buffer, idle());
}

void HostDevice::empty_graveyard() {
  if (memory_.has_graves() && idle()) memory_.bury_all();
}

bool HostDevice::idle() const {
  return std::all_of(queues_.begin(), queues_.end(), [](const SteppedQueue* queue) { return queue->idle(); });
}

// ---- the queues --------------------------------------------------------------------------------------------------

bool HostDevice::poll() {
  const bool moved = !ready_.empty() || !due_.empty();
  for (std::size_t n = ready_.size(); n > 0; --n) {
    SteppedQueue* queue = ready_.front();
    ready_.pop_front();
    queue->step();
  }
  if (due_.empty()) return moved;
  SteppedQueue* queue = due_.front();
  due_.pop_front();
  const TimeNs begin = queue == &compute_ ? loop_.now() : 0;
  queue->kernel_due();
  if (queue == &compute_) busy_ns_ += loop_.now() - begin;
  return true;
}

void HostDevice::kernel_failed(SteppedQueue&, const Op& op, std::string_view what) {
  if (failure_ == nullptr) failure_ = std::make_unique<SeamError>(ErrorKind::closure, op, std::string(what));
}

// ---- the host ----------------------------------------------------------------------------------------------------

WaitResult HostDevice::wait(const Event& event, TimeNs deadline, std::uint32_t epoch) {
  for (;;) {
    if (signals_.alarm || signals_.revoked >= std::int64_t(epoch)) {
      signals_.alarm = false;
      return WaitResult::revoked;
    }
    if (event.queue == nullptr || event.queue->done(event)) break;
    if (deadline <= loop_.now()) return WaitResult::timed_out;
    loop_.turn();
  }
  if (failure_ != nullptr) throw SeamError(*failure_);
  return WaitResult::done;
}

bool HostDevice::drain_by(TimeNs deadline, bool files_too) {
  const bool answers = loop_.until(deadline, [this, files_too] {
    return std::all_of(queues_.begin(), queues_.end(), [&](const SteppedQueue* queue) {
      return queue->idle() || (queue == &on_storage_ && !files_too);
    });
  });
  failure_.reset();
  empty_graveyard();
  return answers;
}

}  // namespace seeksim::runtime
