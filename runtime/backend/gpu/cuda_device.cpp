#ifdef SEEKSIM_HAVE_CUDA

#include "runtime/backend/gpu/cuda_device.h"

#include <algorithm>

#include "kernels/device_table.h"
#include "runtime/seams/queue_names.h"

namespace seeksim::runtime {

CudaDevice::CudaDevice(ProgressLoop& loop, Signals& signals, int rank, const HostMemory::Capacities& capacities,
                       int ordinal)
    : ChosenGpu(ordinal),
      MachineDevice(loop, signals, rank, capacities, &gpu_),
      communication_(*this, queue_names::kCommunication, rank),
      compute_(*this, queue_names::kCompute, rank),
      copy_(*this, queue_names::kCopy, rank),
      streams_{&compute_, &communication_, &copy_} {
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
  std::unique_ptr<CudaQueue>& queue = messages_[std::size_t(which)];
  if (queue == nullptr) {
    queue = std::make_unique<CudaQueue>(*this, queue_names::kMessages.of(which), rank_);
    streams_.push_back(queue.get());
  }
  return *queue;
}

void CudaDevice::compute_by(kernels::Arithmetic* arithmetic, LaunchListener* listener) {
  for (CudaQueue* queue : {&communication_, &compute_, &copy_}) queue->compute_by(arithmetic, listener);
}

// ---- memory ------------------------------------------------------------------------------------------------------

BufferPtr CudaDevice::allocate_in(Space space, std::size_t bytes, MemoryTag tag, const char* name) {
  BufferPtr buffer = MachineDevice::allocate_in(space, bytes, tag, name);
  // Poison is written on the memory's own stream, and the buffer's first user is on another one.
  check_cuda(cudaStreamSynchronize(static_cast<cudaStream_t>(gpu_.lane().stream)), "fresh memory");
  return buffer;
}

// ---- the queues --------------------------------------------------------------------------------------------------

bool CudaDevice::own_queues_idle() const {
  return std::all_of(streams_.begin(), streams_.end(), [](const CudaQueue* queue) { return queue->idle(); });
}

bool CudaDevice::poll() {
  for (std::size_t n = waiting_.size(); n > 0; --n) {
    SteppedQueue* queue = waiting_.front();
    waiting_.pop_front();
    queue->look_again();
  }
  bool moved = step_queues();
  for (CudaQueue* queue : streams_) moved = queue->pump() || moved;
  return moved;
}

void CudaDevice::launch_failed(const Op& op, const std::exception& why) {
  // Reported here, so the next launch must not report it again. A sticky error stays.
  if (dynamic_cast<const kernels::DeviceError*>(&why) != nullptr) static_cast<void>(cudaGetLastError());
  ErrorKind kind = ErrorKind::closure;
  if (const auto* const device = dynamic_cast<const kernels::DeviceError*>(&why))
    kind = device->out_of_memory ? ErrorKind::out_of_memory : ErrorKind::device_lost;
  if (const auto* const seam = dynamic_cast<const SeamError*>(&why)) kind = seam->kind();
  fails_with(kind, op, why.what());
}

// An error of a stream is the context's, and stays: no later call goes well, and only a new process helps.
void CudaDevice::look_for_failure() const {
  MachineDevice::look_for_failure();
  for (const CudaQueue* queue : streams_) {
    if (queue->failure() == cudaSuccess) continue;
    Op op;
    op.rank = rank_;
    check_cuda(queue->failure(), queue->name(), op);
  }
}

}  // namespace seeksim::runtime

#endif
