#include "runtime/backend/machine/machine_device.h"

#include <string>

#include "runtime/seams/queue_names.h"

namespace seeksim::runtime {

MachineDevice::MachineDevice(ProgressLoop& loop, Signals& signals, int rank, const HostMemory::Capacities& capacities,
                             DeviceMemory* on_device)
    : loop_(loop),
      signals_(signals),
      rank_(rank),
      memory_(*this, rank, capacities, true, on_device),
      on_host_(*this, queue_names::kHost, rank),
      on_storage_(*this, queue_names::kStorage, rank) {}

// ---- memory ------------------------------------------------------------------------------------------------------

BufferPtr MachineDevice::allocate_in(Space space, std::size_t bytes, MemoryTag tag, const char* name) {
  empty_graveyard();
  return memory_.allocate(space, bytes, tag, name);
}

void MachineDevice::release(Buffer* buffer) {
  empty_graveyard();
  memory_.release(buffer, idle(true));
}

void MachineDevice::empty_graveyard() {
  if (memory_.has_graves() && idle(true)) memory_.bury_all();
}

// ---- the queues --------------------------------------------------------------------------------------------------

bool MachineDevice::idle(bool files_too) const {
  return on_host_.idle() && (on_storage_.idle() || !files_too) && own_queues_idle();
}

bool MachineDevice::step_queues() {
  const bool moved = !ready_.empty() || !due_.empty();
  for (std::size_t n = ready_.size(); n > 0; --n) {
    SteppedQueue* queue = ready_.front();
    ready_.pop_front();
    queue->step();
  }
  if (due_.empty()) return moved;
  SteppedQueue* queue = due_.front();
  due_.pop_front();
  run_kernel(*queue);
  return true;
}

void MachineDevice::fails_with(ErrorKind kind, const Op& op, std::string_view what) {
  if (failure_ == nullptr) failure_ = std::make_unique<SeamError>(kind, op, std::string(what));
}

void MachineDevice::kernel_failed(SteppedQueue&, const Op& op, std::string_view what) {
  fails_with(ErrorKind::closure, op, what);
}

void MachineDevice::look_for_failure() const {
  if (failure_ != nullptr) throw SeamError(*failure_);
}

// ---- the host ----------------------------------------------------------------------------------------------------

WaitResult MachineDevice::wait(const Event& event, TimeNs deadline, std::uint32_t epoch) {
  for (;;) {
    if (signals_.alarm || signals_.revoked >= std::int64_t(epoch)) {
      signals_.alarm = false;
      return WaitResult::revoked;
    }
    if (event.queue == nullptr || event.queue->done(event)) break;
    look_while_waiting();
    if (deadline <= loop_.now()) return WaitResult::timed_out;
    loop_.turn();
  }
  look_for_failure();
  return WaitResult::done;
}

bool MachineDevice::drain_by(TimeNs deadline, bool files_too) {
  const bool answers = loop_.until(deadline, [this, files_too] { return idle(files_too); });
  failure_.reset();
  empty_graveyard();
  return answers;
}

}  // namespace seeksim::runtime
