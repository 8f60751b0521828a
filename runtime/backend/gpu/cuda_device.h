// CudaDevice: the device of a real process with a GPU of its own. Its memory is the GPU's, within the scenario's
// budget; its queues are streams (cuda_queue.h), but for those of the host's processor and of files, which are stepped
// FIFOs as everywhere. What a GPU reports once it reports for ever: the device is lost then.
#pragma once

#ifdef SEEKSIM_HAVE_CUDA

#include <array>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "runtime/backend/gpu/cuda_memory.h"
#include "runtime/backend/gpu/cuda_queue.h"
#include "runtime/backend/machine/progress.h"
#include "runtime/host/host_memory.h"
#include "runtime/host/stepped_queue.h"

namespace seeksim::runtime {

class CudaDevice final : public Device, public Executor, public Poller, public CudaQueue::Owner {
 public:
  // ordinal: which of the machine's GPUs.
  CudaDevice(ProgressLoop& loop, Signals& signals, int rank, const HostMemory::Capacities& capacities, int ordinal);
  ~CudaDevice() override;

  const BytesByTag& at_peak(Space space) const { return memory_.at_peak(space); }
  // Products and sums over ranks that are enqueued from here on; null: by the contract. listener: told of each launch.
  void compute_by(kernels::Arithmetic* arithmetic, LaunchListener* listener = nullptr);

  // ---- Device
  BufferPtr allocate(std::size_t bytes, MemoryTag tag, const char* name) override {
    return allocate_in(Space::device, bytes, tag, name);
  }
  BufferPtr allocate_in(Space space, std::size_t bytes, MemoryTag tag, const char* name) override;
  void release(Buffer* buffer) override;
  Queue& compute_queue() override { return compute_; }
  Queue& communication_queue() override { return communication_; }
  Queue& copy_queue() override { return copy_; }
  Queue& host_queue() override { return on_host_; }
  Queue& storage_queue() override { return on_storage_; }
  Queue& message_queue(MessageQueue which) override;
  TimeNs duration(const Op&, Cost) const override { return 0; }  // as long as it takes: nobody models it
  WaitResult wait(const Event& event, TimeNs deadline, std::uint32_t epoch) override;
  void drain() override { drain_by(kForever, true); }
  bool drain_by(TimeNs deadline, bool files_too) override;
  void host_touches(const Op&, const Range&) override {}
  std::size_t capacity(Space space) const override { return memory_.capacity(space); }
  MemoryUse use(MemoryTag tag, Space space) const override { return memory_.use(tag, space); }
  MemoryUse use_total(Space space) const override { return memory_.use_total(space); }

  // ---- Executor: of the queues of the host and of files
  void make_ready(SteppedQueue& queue) override { ready_.push_back(&queue); }
  void step_after(SteppedQueue& queue, TimeNs) override { due_.push_back(&queue); }
  TimeNs duration(const SteppedQueue&, const Op&, Cost) override { return 1; }  // in a round of its own
  void host_place_reached(SteppedQueue&) override {}
  void wait_elsewhere(SteppedQueue& queue) override { waiting_.push_back(&queue); }
  void kernel_failed(SteppedQueue& queue, const Op& op, std::string_view what) override;

  // ---- CudaQueue::Owner
  void launch_failed(const Op& op, const std::exception& why) override;

  // ---- Poller
  bool poll() override;

 private:
  bool idle(bool files_too) const;
  void empty_graveyard();
  void look_for_failure();

  ProgressLoop& loop_;
  Signals& signals_;
  const int rank_;
  CudaMemory gpu_;  // before the memory that comes from it, and before streams: it chooses the GPU
  CudaQueue communication_, compute_, copy_;
  SteppedQueue on_host_, on_storage_;
  std::array<std::unique_ptr<CudaQueue>, std::size_t(MessageQueue::count_)> messages_;
  std::vector<CudaQueue*> streams_;
  std::deque<SteppedQueue*> ready_;    // to be stepped
  std::deque<SteppedQueue*> due_;      // whose front kernel is to run
  std::deque<SteppedQueue*> waiting_;  // for a stream
  HostMemory memory_;
  std::unique_ptr<SeamError> failure_;
};

}  // namespace seeksim::runtime

#endif
