// HostDevice: the device of a real process without an accelerator. Its memory is the host's, with the capacities that
// the scenario gives a device; its queues are the same stepped FIFOs as the simulator's, driven by the progress loop,
// one kernel a round, so that messages move between kernels.
#pragma once

#include <array>
#include <deque>
#include <memory>
#include <vector>

#include "runtime/backend/machine/progress.h"
#include "runtime/host/host_memory.h"
#include "runtime/host/stepped_queue.h"

namespace seeksim::runtime {

class HostDevice final : public Device, public Executor, public Poller {
 public:
  HostDevice(ProgressLoop& loop, Signals& signals, int rank, const HostMemory::Capacities& capacities);
  ~HostDevice() override;

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
  TimeNs busy_ns() const override { return busy_ns_; }
  void host_touches(const Op&, const Range&) override {}
  std::size_t capacity(Space space) const override { return memory_.capacity(space); }
  MemoryUse use(MemoryTag tag, Space space) const override { return memory_.use(tag, space); }
  MemoryUse use_total(Space space) const override { return memory_.use_total(space); }

  // ---- Executor
  void make_ready(SteppedQueue& queue) override { ready_.push_back(&queue); }
  void step_after(SteppedQueue& queue, TimeNs) override { due_.push_back(&queue); }
  TimeNs duration(const SteppedQueue&, const Op&, Cost) override { return 1; }  // in a round of its own
  void host_place_reached(SteppedQueue&) override {}                            // whoever waits looks every round
  void kernel_failed(SteppedQueue& queue, const Op& op, std::string_view what) override;

  // ---- Poller
  bool poll() override;

 private:
  bool idle() const;
  void empty_graveyard();

  ProgressLoop& loop_;
  Signals& signals_;
  const int rank_;
  HostMemory memory_;
  std::deque<SteppedQueue*> ready_;  // to be stepped
  std::deque<SteppedQueue*> due_;    // whose front kernel is to run
  SteppedQueue communication_, compute_, copy_, on_host_, on_storage_;
  std::array<std::unique_ptr<SteppedQueue>, std::size_t(MessageQueue::count_)> messages_;
  std::vector<SteppedQueue*> queues_;  // all of them
  std::unique_ptr<SeamError> failure_;
  TimeNs busy_ns_ = 0;  // of the compute queue
};

}  // namespace seeksim::runtime
