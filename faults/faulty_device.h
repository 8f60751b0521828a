// A Device that computes slower than it should, or wrong, or refuses memory. Memory is the wrapped device's, and so are
// the queues unless a rule has to see what is launched.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "faults/faulty_clock.h"
#include "faults/forwarding.h"
#include "faults/host_faults.h"
#include "faults/value_fault.h"

namespace seeksim::faults {

// A straggler or slow_disk rule: how many times slower its device or disk is at a given time.
class Straggler {
 public:
  explicit Straggler(RuleState& state);
  const Rule& rule() const { return state_.rule(); }
  // The factor: 1 until the first match starts it.
  double factor(const runtime::Op& op, TimeNs now);

 private:
  RuleState& state_;
  TimeNs since_ = runtime::kForever;
};

class FaultyDevice final : public ForwardingDevice {
 public:
  FaultyDevice(int rank, runtime::Device& inner, runtime::Clock& clock, FaultyClock& shown, HostFaults& host,
               std::vector<Straggler*> stragglers, std::vector<RuleState*> hangs, std::vector<RuleState*> values,
               MemoryFaults& memory, bool notes)
      : ForwardingDevice(inner),
        rank_(rank),
        clock_(clock),
        shown_(shown),
        host_(host),
        stragglers_(std::move(stragglers)),
        hangs_(std::move(hangs)),
        values_(std::move(values)),
        memory_(memory),
        notes_(notes),
        own_acts_(host.watches_own_acts()),
        compute_(rank, inner, inner.compute_queue(), clock, host, values_, memory.last),
        communication_(rank, inner, inner.communication_queue(), clock, host, values_, memory.last),
        copy_(rank, inner, inner.copy_queue(), clock, host, values_, memory.last),
        on_host_(rank, inner, inner.host_queue(), clock, host, values_, memory.last),
        on_storage_(rank, inner, inner.storage_queue(), clock, host, values_, memory.last) {}

  TimeNs duration(const runtime::Op& op, runtime::Cost cost) const override;
  runtime::WaitResult wait(const runtime::Event& event, TimeNs deadline, std::uint32_t epoch) override;
  void drain() override;
  bool drain_by(TimeNs deadline, bool files_too) override;

  runtime::BufferPtr allocate(std::size_t bytes, runtime::MemoryTag tag, const char* name) override {
    return allocate_in(runtime::Space::device, bytes, tag, name);
  }
  runtime::BufferPtr allocate_in(runtime::Space space, std::size_t bytes, runtime::MemoryTag tag,
                                 const char* name) override;
  runtime::Queue& compute_queue() override { return pick(compute_, inner_.compute_queue()); }
  runtime::Queue& communication_queue() override { return pick(communication_, inner_.communication_queue()); }
  runtime::Queue& copy_queue() override { return pick(copy_, inner_.copy_queue()); }
  runtime::Queue& host_queue() override { return pick(on_host_, inner_.host_queue()); }
  runtime::Queue& storage_queue() override { return pick(on_storage_, inner_.storage_queue()); }
  runtime::Queue& message_queue(runtime::MessageQueue which) override {
    std::unique_ptr<FaultyQueue>& ours = messages_[std::size_t(which)];
    runtime::Queue& plain = inner_.message_queue(which);
    if (ours == nullptr)
      ours = std::make_unique<FaultyQueue>(rank_, inner_, plain, clock_, host_, values_, memory_.last);
    return pick(*ours, plain);
  }

 private:
  runtime::Queue& pick(FaultyQueue& ours, runtime::Queue& plain) {
    return values_.empty() && !notes_ && !own_acts_ ? plain : static_cast<runtime::Queue&>(ours);
  }

  int rank_;
  runtime::Clock& clock_;
  FaultyClock& shown_;
  HostFaults& host_;
  std::vector<Straggler*> stragglers_;
  std::vector<RuleState*> hangs_;
  std::vector<RuleState*> values_;
  MemoryFaults& memory_;
  bool notes_;     // a rule needs to know what was launched
  bool own_acts_;  // the host may die on its way into a launch or an allocation
  FaultyQueue compute_, communication_, copy_, on_host_, on_storage_;
  std::array<std::unique_ptr<FaultyQueue>, std::size_t(runtime::MessageQueue::count_)> messages_;
};

}  // namespace seeksim::faults
