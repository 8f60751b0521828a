// HostDevice: the device of a real process without an accelerator. Its memory is the host's, with the capacities that
// the scenario gives a device; its queues are the same stepped FIFOs as the simulator's, driven by the progress loop,
// one kernel a round, so that messages move between kernels.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "runtime/backend/machine/machine_device.h"

namespace seeksim::runtime {

class HostDevice final : public MachineDevice {
 public:
  HostDevice(ProgressLoop& loop, Signals& signals, int rank, const HostMemory::Capacities& capacities);
  ~HostDevice() override;

  // Computes products and sums that are enqueued from here on; null: by the contract. listener hears of each launch.
  void compute_by(kernels::Arithmetic* arithmetic, LaunchListener* listener = nullptr);

  // ---- Device
  Queue& compute_queue() override { return compute_; }
  Queue& communication_queue() override { return communication_; }
  Queue& copy_queue() override { return copy_; }
  Queue& message_queue(MessageQueue which) override;
  TimeNs busy_ns() const override { return busy_ns_; }

  // ---- Poller
  bool poll() override { return step_queues(); }

 private:
  bool own_queues_idle() const override;
  void run_kernel(SteppedQueue& queue) override;

  SteppedQueue communication_, compute_, copy_;
  std::array<std::unique_ptr<SteppedQueue>, std::size_t(MessageQueue::count_)> messages_;
  std::vector<SteppedQueue*> queues_;  // of the device: all of these
  TimeNs busy_ns_ = 0;                 // of the compute queue
};

}  // namespace seeksim::runtime
