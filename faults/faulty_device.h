// A Device that computes slower than it should, or wrong. Memory is the wrapped device's own, and so are its queues
// unless a rule strikes values in them.
#pragma once

#include <vector>

#include "faults/host_faults.h"
#include "faults/value_fault.h"

namespace seeksim::faults {

// A straggler rule: how many times slower its device is at a time.
class Straggler {
 public:
  explicit Straggler(RuleState& state);
  // The first match starts it; 1 before that.
  double factor(const runtime::Op& op, TimeNs now);

 private:
  double factor_after(TimeNs elapsed) const;
  RuleState& state_;
  TimeNs since_ = runtime::kForever;
};

class FaultyDevice final : public runtime::Device {
 public:
  FaultyDevice(int rank, runtime::Device& inner, runtime::Clock& clock, const HostFaults& host,
               std::vector<Straggler*> stragglers, std::vector<RuleState*> values)
      : rank_(rank),
        inner_(inner),
        clock_(clock),
        host_(host),
        stragglers_(std::move(stragglers)),
        values_(std::move(values)),
        compute_(rank, inner.compute_queue(), clock, values_),
        communication_(rank, inner.communication_queue(), clock, values_),
        copy_(rank, inner.copy_queue(), clock, values_),
        on_host_(rank, inner.host_queue(), clock, values_),
        on_storage_(rank, inner.storage_queue(), clock, values_) {}

  TimeNs duration(const runtime::Op& op, runtime::Cost cost) const override;
  runtime::WaitResult wait(const runtime::Event& event, TimeNs deadline, std::uint32_t epoch) override;
  void drain() override;

  runtime::BufferPtr allocate(std::size_t bytes, runtime::MemoryTag tag, const char* name) override {
    return inner_.allocate(bytes, tag, name);
  }
  runtime::BufferPtr allocate_in(runtime::Space space, std::size_t bytes, runtime::MemoryTag tag,
                                 const char* name) override {
    return inner_.allocate_in(space, bytes, tag, name);
  }
  void release(runtime::Buffer* buffer) override { inner_.release(buffer); }
  runtime::Queue& compute_queue() override { return pick(compute_, inner_.compute_queue()); }
  runtime::Queue& communication_queue() override { return pick(communication_, inner_.communication_queue()); }
  runtime::Queue& copy_queue() override { return pick(copy_, inner_.copy_queue()); }
  runtime::Queue& host_queue() override { return pick(on_host_, inner_.host_queue()); }
  runtime::Queue& storage_queue() override { return pick(on_storage_, inner_.storage_queue()); }
  void host_touches(const runtime::Op& op, const runtime::Range& range) override { inner_.host_touches(op, range); }
  std::size_t capacity(runtime::Space space) const override { return inner_.capacity(space); }
  runtime::MemoryUse use(runtime::MemoryTag tag, runtime::Space space) const override { return inner_.use(tag, space); }
  runtime::MemoryUse use_total(runtime::Space space) const override { return inner_.use_total(space); }

 private:
  runtime::Queue& pick(FaultyQueue& ours, runtime::Queue& plain) {
    return values_.empty() ? plain : static_cast<runtime::Queue&>(ours);
  }

  int rank_;
  runtime::Device& inner_;
  runtime::Clock& clock_;
  const HostFaults& host_;
  std::vector<Straggler*> stragglers_;
  std::vector<RuleState*> values_;
  FaultyQueue compute_, communication_, copy_, on_host_, on_storage_;
};

}  // namespace seeksim::faults
