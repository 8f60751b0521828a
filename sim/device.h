// SimDevice: a rank's pretended accelerator. A ledger with a capacity, fresh memory full of poison, three stepped
// queues whose launches take the time that a cost model gives them, and the host's one blocking wait.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "runtime/access_watcher.h"
#include "runtime/seams.h"
#include "runtime/stepped_queue.h"
#include "sim/links.h"
#include "sim/loop.h"
#include "sim/overlap.h"

namespace seeksim::sim {

// What one part of a rank must tell the others.
struct RankSignals {
  std::int64_t revoked = -1;  // highest epoch of which this rank has heard that it is revoked
  bool alarm = false;         // a communicator failed; the next wait ends at once, so that the error is looked at
};

class SimDevice final : public runtime::Device, public runtime::Executor, public TimerTarget {
 public:
  SimDevice(Loop& loop, Host& host, Network& network, const DeviceModel& model, RankSignals& signals);
  ~SimDevice() override;

  // Durations are asked of the decorated device, so that a fault may stretch them.
  void set_outer(const runtime::Device& outer) { outer_ = &outer; }
  void watch(runtime::AccessWatcher* watcher);  // who hears of every access; null: nobody
  bool watched() const { return watcher_ != nullptr; }
  void abandon();  // the rank is dead
  std::array<const runtime::SteppedQueue*, 3> queues() const { return {&compute_, &communication_, &copy_}; }
  void fetch_ahead() const { communication_.fetch(); }
  runtime::Event host_waits_for() const { return host_waits_for_; }
  OverlapMeter& overlap() { return overlap_; }

  // ---- runtime::Device
  runtime::BufferPtr allocate(std::size_t bytes, runtime::MemoryTag tag, const char* name) override;
  void release(runtime::Buffer* buffer) override;
  runtime::Queue& compute_queue() override { return compute_; }
  runtime::Queue& communication_queue() override { return communication_; }
  runtime::Queue& copy_queue() override { return copy_; }
  TimeNs duration(const runtime::Op& op, runtime::Cost cost) const override;
  runtime::WaitResult wait(const runtime::Event& event, TimeNs deadline, std::uint32_t epoch) override;
  void drain() override;
  void host_touches(const runtime::Op& op, const runtime::Range& range) override {
    if (watcher_ != nullptr) watcher_->host_touches(op, range);
  }
  std::size_t capacity() const override { return model_.capacity_bytes; }
  runtime::MemoryUse use(runtime::MemoryTag tag) const override { return use_[std::size_t(tag)]; }
  runtime::MemoryUse use_total() const override { return total_; }

  // ---- runtime::Executor
  void make_ready(runtime::SteppedQueue& queue) override { loop_.make_ready(queue); }
  void step_after(runtime::SteppedQueue& queue, TimeNs duration) override;
  TimeNs duration(const runtime::SteppedQueue& queue, const runtime::Op& op, runtime::Cost cost) override;
  void host_place_reached(runtime::SteppedQueue& queue) override;
  void kernel_failed(runtime::SteppedQueue& queue, const runtime::Op& op, std::string_view what) override;

  // ---- TimerTarget: kernels that are due. Argument: number of the queue, its generation.
  bool live(const Timer& timer) override;
  void fire(const Timer& timer) override;

 private:
  static void change(runtime::MemoryUse& use, std::size_t bytes);
  runtime::SteppedQueue& queue(std::uint64_t number) {
    return number == 0 ? compute_ : number == 1 ? communication_ : copy_;
  }
  bool idle() const { return compute_.idle() && communication_.idle() && copy_.idle(); }
  void bury(runtime::Buffer* buffer);
  void empty_graveyard();

  Loop& loop_;
  Host& host_;
  Network& network_;
  const DeviceModel& model_;
  RankSignals& signals_;
  const runtime::Device* outer_ = this;
  runtime::AccessWatcher* watcher_ = nullptr;
  std::unique_ptr<runtime::SeamError> failure_;
  runtime::Event host_waits_for_;
  runtime::SteppedQueue communication_;  // the queues in the order of use
  runtime::SteppedQueue compute_;
  runtime::SteppedQueue copy_;
  std::vector<runtime::Buffer*> graveyard_;  // released while work that may touch them was pending
  std::array<runtime::MemoryUse, std::size_t(runtime::MemoryTag::count_)> use_{};
  runtime::MemoryUse total_;
  OverlapMeter overlap_;
  std::uint64_t allocations_ = 0;
};

}  // namespace seeksim::sim
