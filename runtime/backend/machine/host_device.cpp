#include "runtime/backend/machine/host_device.h"

#include <algorithm>

#include "runtime/seams/queue_names.h"

namespace seeksim::runtime {

HostDevice::HostDevice(ProgressLoop& loop, Signals& signals, int rank, const HostMemory::Capacities& capacities)
    : MachineDevice(loop, signals, rank, capacities, nullptr),
      communication_(*this, queue_names::kCommunication, rank),
      compute_(*this, queue_names::kCompute, rank),
      copy_(*this, queue_names::kCopy, rank),
      queues_{&compute_, &communication_, &copy_} {
  loop.add(*this);
}

HostDevice::~HostDevice() {
  loop_.remove(*this);
  for (SteppedQueue* queue : queues_) queue->abandon();
  on_host_.abandon();
  on_storage_.abandon();
}

Queue& HostDevice::message_queue(MessageQueue which) {
  std::unique_ptr<SteppedQueue>& queue = messages_[std::size_t(which)];
  if (queue == nullptr) {
    queue = std::make_unique<SteppedQueue>(*this, queue_names::kMessages.of(which), rank_);
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

bool HostDevice::own_queues_idle() const {
  return std::all_of(queues_.begin(), queues_.end(), [](const SteppedQueue* queue) { return queue->idle(); });
}

void HostDevice::run_kernel(SteppedQueue& queue) {
  const TimeNs begin = &queue == &compute_ ? loop_.now() : 0;
  queue.kernel_due();
  if (&queue == &compute_) busy_ns_ += loop_.now() - begin;
}

}  // namespace seeksim::runtime
