// MachineDevice: what the devices of real processes share, with a GPU or without one: the ledger of memory, the queues
// of the host's processor and of files, which are stepped FIFOs driven by the progress loop, and the host's wait.
#pragma once

#include <deque>
#include <memory>

#include "runtime/backend/machine/progress.h"
#include "runtime/host/host_memory.h"
#include "runtime/host/stepped_queue.h"

namespace seeksim::runtime {

class MachineDevice : public Device, public Executor, public Poller {
 public:
  const BytesByTag& at_peak(Space space) const { return memory_.at_peak(space); }

  // ---- Device
  BufferPtr allocate(std::size_t bytes, MemoryTag tag, const char* name) override {
    return allocate_in(Space::device, bytes, tag, name);
  }
  BufferPtr allocate_in(Space space, std::size_t bytes, MemoryTag tag, const char* name) override;
  void release(Buffer* buffer) override;
  Queue& host_queue() override { return on_host_; }
  Queue& storage_queue() override { return on_storage_; }
  TimeNs duration(const Op&, Cost) const override { return 0; }  // not modelled: it takes as long as it takes
  WaitResult wait(const Event& event, TimeNs deadline, std::uint32_t epoch) override;
  void drain() override { drain_by(kForever, true); }
  bool drain_by(TimeNs deadline, bool files_too) override;
  void host_touches(const Op&, const Range&) override {}
  std::size_t capacity(Space space) const override { return memory_.capacity(space); }
  MemoryUse use(MemoryTag tag, Space space) const override { return memory_.use(tag, space); }
  MemoryUse use_total(Space space) const override { return memory_.use_total(space); }

  // ---- Executor of the stepped queues
  void make_ready(SteppedQueue& queue) override { ready_.push_back(&queue); }
  void step_after(SteppedQueue& queue, TimeNs) override { due_.push_back(&queue); }
  TimeNs duration(const SteppedQueue&, const Op&, Cost) override { return 1; }  // in a round of its own
  void host_place_reached(SteppedQueue&) override {}                            // a waiting host looks every round
  void kernel_failed(SteppedQueue& queue, const Op& op, std::string_view what) override;

 protected:
  // on_device: where the device's own memory lies; null: in the host's.
  MachineDevice(ProgressLoop& loop, Signals& signals, int rank, const HostMemory::Capacities& capacities,
                DeviceMemory* on_device);

  // Whether the device's own queues have nothing to do.
  virtual bool own_queues_idle() const = 0;
  // Throws what has failed since the last drain.
  virtual void look_for_failure() const;
  // Asked in each round of a wait.
  virtual void look_while_waiting() const {}
  // The front kernel of a queue is to run.
  virtual void run_kernel(SteppedQueue& queue) { queue.kernel_due(); }

  bool idle(bool files_too) const;
  // One round of the stepped queues: all that are ready make a step, and one kernel runs. False: there was nothing.
  bool step_queues();
  void fails_with(ErrorKind kind, const Op& op, std::string_view what);  // the first failure stays

  ProgressLoop& loop_;
  Signals& signals_;
  const int rank_;

 private:
  void empty_graveyard();

  HostMemory memory_;
  std::deque<SteppedQueue*> ready_;  // to be stepped
  std::deque<SteppedQueue*> due_;    // whose front kernel is to run

 protected:
  SteppedQueue on_host_, on_storage_;

 private:
  std::unique_ptr<SeamError> failure_;
};

}  // namespace seeksim::runtime
