// CudaDevice: the device of a real process with a GPU of its own. Its memory is the GPU's, within the scenario's
// budget; its queues are streams (cuda_queue.h), but for those of the host's processor and of files, which are stepped
// FIFOs as everywhere. What a GPU reports once it reports for ever: the device is lost then.
#pragma once

#ifdef SEEKSIM_HAVE_CUDA

#include <array>
#include <deque>
#include <memory>
#include <vector>

#include "runtime/backend/gpu/cuda_memory.h"
#include "runtime/backend/gpu/cuda_queue.h"
#include "runtime/backend/machine/machine_device.h"

namespace seeksim::runtime {

// A base of CudaDevice, so that it is there before all that comes from it: it chooses the GPU.
struct ChosenGpu {
  explicit ChosenGpu(int ordinal) : gpu_(ordinal, true) {}
  CudaMemory gpu_;
};

class CudaDevice final : private ChosenGpu, public MachineDevice, public CudaQueue::Owner {
 public:
  // ordinal: which of the machine's GPUs.
  CudaDevice(ProgressLoop& loop, Signals& signals, int rank, const HostMemory::Capacities& capacities, int ordinal);
  ~CudaDevice() override;

  // Computes products and sums that are enqueued from here on; null: by the contract. listener hears of each launch.
  void compute_by(kernels::Arithmetic* arithmetic, LaunchListener* listener = nullptr);

  // ---- Device
  BufferPtr allocate_in(Space space, std::size_t bytes, MemoryTag tag, const char* name) override;
  Queue& compute_queue() override { return compute_; }
  Queue& communication_queue() override { return communication_; }
  Queue& copy_queue() override { return copy_; }
  Queue& message_queue(MessageQueue which) override;

  // ---- Executor
  void wait_elsewhere(SteppedQueue& queue) override { waiting_.push_back(&queue); }

  // ---- CudaQueue::Owner
  void launch_failed(const Op& op, const std::exception& why) override;

  // ---- Poller
  bool poll() override;

 private:
  bool own_queues_idle() const override;
  void look_for_failure() const override;
  void look_while_waiting() const override { look_for_failure(); }

  CudaQueue communication_, compute_, copy_;
  std::array<std::unique_ptr<CudaQueue>, std::size_t(MessageQueue::count_)> messages_;
  std::vector<CudaQueue*> streams_;
  std::deque<SteppedQueue*> waiting_;  // for a stream
};

}  // namespace seeksim::runtime

#endif
