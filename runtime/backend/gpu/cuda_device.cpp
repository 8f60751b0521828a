#ifdef SEEKSIM_HAVE_CUDA

#include "runtime/backend/gpu/cuda_device.h"

#include <algorithm>

#include "kernels/device_table.h"

namespace seeksim::runtime {

CudaDevice::CudaDevice(ProgressLoop& loop, Signals& signals, int rank, const HostMemory::Capacities& capacities,
                       int ordinal)
    : loop_(loop),
      signals_(signals),
      rank_(rank),
      gpu_(ordinal, true),
      communication_(*this, "communication queue", rank),
      compute_(*this, "compute queue", rank),
      copy_(*this, "copy queue", rank),
      on_host_(*this, "host queue", rank),
      on_storage_(*this, "storage queue", rank),
      streams_{&compute_, &communication_, &copy_},
      memory_(*this, rank, capacities, true, &gpu_) {
  loop.add(*this);
}

// Nothing may still be at work on memory that goes: a GPU that does not answer is left to the end of the process.
CudaDevice::~CudaDevice() {
  loop_.remove(*this);
  on_host_.abandon();
  on_storage_.abandon();
  for (const CudaQueue* queue : streams_) static_cast<void>(cudaStreamSynchronize(queue->stream()));
}

Queue& CudaDevice::message_queue(MessageQueue which) {
  static constexpr std::array<const char*, std::size_t(MessageQueue::count_)> kNames = {
      "queue of sent activations", "queue of received activations", "queue of sent gradients",
      "queue of received gradients", "queue of tensor ways"};
  std::unique_ptr<CudaQueue>& queue = messages_[std::size_t(which)];
  if (queue == nullptr) {
    queue = std::make_unique<CudaQueue>(*this, kNames[std::size_t(which)], rank_);
    streams_.push_back(queue.get());
  }
  return *queue;
}

void CudaDevice::compute_by(kernels::Arithmetic* arithmetic, LaunchListener* listener) {
  for (CudaQueue* queue : {&communication_, &compute_, &copy_}) queue->compute_by(arithmetic, listener);
}

// ---- memory ------------------------------------------------------------------------------------------------------

BufferPtr CudaDevice::allocate_in(Space space, std::size_t bytes, MemoryTag tag, const char* name) {
  empty_graveyard();
  BufferPtr buffer = memory_.allocate(space, bytes, tag, name);
  // Poison is written on the memory's own stream; whoever uses the buffer first is on another one.
  check_cuda(cudaStreamSynchronize(static_cast<cudaStream_t>(gpu_.lane().stream)), "fresh memory");
  return buffer;
}

void CudaDevice::release(Buffer* buffer) {
  empty_graveyard();
  memory_.release(buffer, idle(true));
}

void CudaDevice::empty_graveyard() {
  if (memory_.has_graves() && idle(true)) memory_.bury_all();
}

bool CudaDevice::idle(bool files_too) const {
  const bool host = on_host_.idle() && (on_storage_.idle() || !files_too);
  return host && std::all_of(streams_.begin(), streams_.end(), [](const CudaQueue* queue) { return queue->idle(); });
}

// ---- the queues --------------------------------------------------------------------------------------------------

bool CudaDevice::poll() {
  bool moved = !ready_.empty() || !due_.empty();
  for (std::size_t n = waiting_.size(); n > 0; --n) {
    SteppedQueue* queue = waiting_.front();
    waiting_.pop_front();
    queue->look_again();
  }
  for (std::size_t n = ready_.size(); n > 0; --n) {
    SteppedQueue* queue = ready_.front();
    ready_.pop_front();
    queue->step();
  }
  if (!due_.empty()) {
    SteppedQueue* queue = due_.front();
    due_.pop_front();
    queue->kernel_due();
  }
  for (CudaQueue* queue : streams_) moved = queue->pump() || moved;
  return moved;
}

void CudaDevice::kernel_failed(SteppedQueue&, const Op& op, std::string_view what) {
  if (failure_ == nullptr) failure_ = std::make_unique<SeamError>(ErrorKind::closure, op, std::string(what));
}

void CudaDevice::launch_failed(const Op& op, const std::exception& why) {
  // It is told here, and not again by the next launch. What is sticky stays.
  if (dynamic_cast<const kernels::DeviceError*>(&why) != nullptr) static_cast<void>(cudaGetLastError());
  if (failure_ != nullptr) return;
  ErrorKind kind = ErrorKind::closure;
  if (const auto* const device = dynamic_cast<const kernels::DeviceError*>(&why))
    kind = device->out_of_memory ? ErrorKind::out_of_memory : ErrorKind::device_lost;
  if (const auto* const seam = dynamic_cast<const SeamError*>(&why)) kind = seam->kind();
  failure_ = std::make_unique<SeamError>(kind, op, why.what());
}

// An error of a stream is the context's, and stays: no later call goes well, and only a new process helps.
void CudaDevice::look_for_failure() {
  if (failure_ != nullptr) throw SeamError(*failure_);
  for (const CudaQueue* queue : streams_) {
    if (queue->failure() == cudaSuccess) continue;
    Op op;
    op.rank = rank_;
    check_cuda(queue->failure(), queue->name(), op);
  }
}

// ---- the host ----------------------------------------------------------------------------------------------------

WaitResult CudaDevice::wait(const Event& event, TimeNs deadline, std::uint32_t epoch) {
  for (;;) {
    if (signals_.alarm || signals_.revoked >= std::int64_t(epoch)) {
      signals_.alarm = false;
      return WaitResult::revoked;
    }
    if (event.queue == nullptr || event.queue->done(event)) break;
    look_for_failure();
    if (deadline <= loop_.now()) return WaitResult::timed_out;
    loop_.turn();
  }
  look_for_failure();
  return WaitResult::done;
}

bool CudaDevice::drain_by(TimeNs deadline, bool files_too) {
  const bool answers = loop_.until(deadline, [this, files_too] { return idle(files_too); });
  failure_.reset();
  empty_graveyard();
  return answers;
}

}  // namespace seeksim::runtime

#endif
