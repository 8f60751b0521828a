// SimDevice: a rank's pretended accelerator and the host beside it. Their memory (host_memory.h), five stepped queues
// whose launches take the time that a cost model gives them, and the host's one blocking wait.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "runtime/host/access_watcher.h"
#include "runtime/host/host_memory.h"
#include "runtime/host/stepped_queue.h"
#include "runtime/seams/seams.h"
#include "sim/alike.h"
#include "sim/links.h"
#include "sim/loop.h"
#include "sim/meters.h"
#include "sim/timeline.h"

namespace seeksim::sim {

// What one part of a rank must tell the others.
struct RankSignals {
  std::int64_t revoked = -1;  // highest epoch of which this rank has heard that it is revoked
  bool alarm = false;         // a communicator failed; the next wait ends at once, so that the error is looked at
};

using runtime::BytesByTag;

class SimDevice final : public runtime::Device, public runtime::Executor, public TimerTarget {
 public:
  SimDevice(Loop& loop, Host& host, Network& network, const DeviceModel& model, const StorageModel& storage,
            RankSignals& signals, bool shapes, runtime::DeviceMemory* memory, kernels::Arithmetic* arithmetic = nullptr,
            runtime::LaunchListener* listener = nullptr);
  ~SimDevice() override;

  // Durations are asked of the decorated device, so that a fault may stretch them.
  void set_outer(const runtime::Device& outer) { outer_ = &outer; }
  void watch(runtime::AccessWatcher* watcher);  // watcher hears of every access; null: none
  bool watched() const { return watcher_ != nullptr; }
  void abandon();  // the rank is dead
  const std::vector<runtime::SteppedQueue*>& queues() const { return queues_; }
  const BytesByTag& at_peak(runtime::Space space) const { return memory_.at_peak(space); }
  void fetch_ahead() const { communication_.fetch(); }
  runtime::Event host_waits_for() const { return host_waits_for_; }
  // How long a launch takes that would start now; of what an operation of a transport computes itself.
  TimeNs with_noise(const runtime::Op& op, runtime::Cost cost);
  Course& course() { return meters_.course; }
  OverlapMeter& overlap() { return meters_.overlap; }
  const OverlapMeter& copies() const { return meters_.copies; }
  const FileUse& files() const { return meters_.files; }
  TrainingMeter& training() { return meters_.training; }
  const TrainingMeter& training() const { return meters_.training; }
  void draw_on(Timeline* timeline) { timeline_ = timeline; }  // null: no drawing
  // Where an operation of a transport computes what it sums itself.
  kernels::Lane lane_of(const runtime::Op& op) {
    if (listener_ != nullptr) listener_->at(op);
    return lane_;
  }
  const PassMeter& passes() const { return meters_.passes; }
  TimeNs busy_ns() const override { return meters_.busy_ns; }

  // ---- runtime::Device
  runtime::BufferPtr allocate(std::size_t bytes, runtime::MemoryTag tag, const char* name) override {
    return allocate_in(runtime::Space::device, bytes, tag, name);
  }
  runtime::BufferPtr allocate_in(runtime::Space space, std::size_t bytes, runtime::MemoryTag tag,
                                 const char* name) override;
  void release(runtime::Buffer* buffer) override;
  runtime::Queue& compute_queue() override { return compute_; }
  runtime::Queue& communication_queue() override { return communication_; }
  runtime::Queue& copy_queue() override { return copy_; }
  runtime::Queue& host_queue() override { return on_host_; }
  runtime::Queue& storage_queue() override { return on_storage_; }
  runtime::Queue& message_queue(runtime::MessageQueue which) override;
  TimeNs duration(const runtime::Op& op, runtime::Cost cost) const override;
  runtime::WaitResult wait(const runtime::Event& event, TimeNs deadline, std::uint32_t epoch) override;
  void drain() override { drain_by(runtime::kForever, true); }
  bool drain_by(TimeNs deadline, bool files_too) override;
  void host_touches(const runtime::Op& op, const runtime::Range& range) override {
    if (watcher_ != nullptr) watcher_->host_touches(op, range);
  }
  std::size_t capacity(runtime::Space space) const override { return memory_.capacity(space); }
  runtime::MemoryUse use(runtime::MemoryTag tag, runtime::Space space) const override {
    return memory_.use(tag, space);
  }
  runtime::MemoryUse use_total(runtime::Space space) const override { return memory_.use_total(space); }

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
  std::uint64_t number(const runtime::SteppedQueue& queue);
  bool idle() const;
  void empty_graveyard();
  void draw_memory();

  Loop& loop_;
  Host& host_;
  Network& network_;
  const DeviceModel& model_;
  const StorageModel& storage_;
  RankSignals& signals_;
  const bool shapes_;  // memory is counted and not there, kernels take their time and do nothing
  const runtime::Device* outer_ = this;
  runtime::AccessWatcher* watcher_ = nullptr;
  std::unique_ptr<runtime::SeamError> failure_;
  runtime::Event host_waits_for_;
  runtime::SteppedQueue communication_;  // the queues in the order of use
  runtime::SteppedQueue compute_;
  runtime::SteppedQueue copy_;
  runtime::SteppedQueue on_host_;
  runtime::SteppedQueue on_storage_;
  std::array<std::unique_ptr<runtime::SteppedQueue>, std::size_t(runtime::MessageQueue::count_)> messages_;
  std::vector<runtime::SteppedQueue*> queues_;  // all of them
  runtime::HostMemory memory_;
  const kernels::Lane lane_;  // of what the device computes; none: the host does, at the times that it would have
  runtime::LaunchListener* const listener_;
  struct Meters {
    OverlapMeter overlap;  // of communication
    OverlapMeter copies;   // between host and device
    FileUse files;
    PassMeter passes;
    Course course;
    TrainingMeter training;
    TimeNs busy_ns = 0;  // of the compute queue
  } meters_;
  Timeline* timeline_ = nullptr;
};

}  // namespace seeksim::sim
