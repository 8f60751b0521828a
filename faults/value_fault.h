// Faults of values: a number in device memory becomes another one. A rule names a site (what kind of memory, at which
// point of the step). The strike is one tiny launch on the same queue, just before or after the operation that the rule
// means, so that it happens in stream order on any device.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "faults/host_faults.h"
#include "faults/memory_fault.h"

namespace seeksim::faults {

// What a strike of a rule at this launch would hit; empty if the launch does not concern the rule's site.
struct Target {
  runtime::Range range;  // a whole tensor or a part of it; never empty
  bool before = false;   // strike before the launch reads it; false: after the launch has written it
};
std::optional<Target> target_of(const Rule& rule, const runtime::Op& op, std::span<const runtime::Range> ranges);

// Enqueues the strike. `op`: the Op of the launch that it hits.
void strike(runtime::Queue& queue, const runtime::Op& op, const Rule& rule, const runtime::Range& target);

// A queue that strikes some of its launches and notes what is launched; a host may die on its way into a launch.
// Everything goes to the wrapped queue; events are the wrapped queue's.
class FaultyQueue final : public runtime::Queue {
 public:
  FaultyQueue(int rank, runtime::Device& device, runtime::Queue& inner, runtime::Clock& clock, HostFaults& host,
              std::span<RuleState* const> rules, LastOps& last)
      : rank_(rank), device_(device), inner_(inner), clock_(clock), host_(host), rules_(rules), last_(last) {}

  void enqueue_kernel(const runtime::Op& op, runtime::Cost cost, const runtime::Closure& closure,
                      std::span<const runtime::Range> ranges) override;
  void enqueue_activity(const runtime::Op& op, runtime::Activity& activity,
                        std::span<const runtime::Range> ranges) override {
    inner_.enqueue_activity(op, activity, ranges);
  }
  void activity_done(runtime::Activity& activity) override { inner_.activity_done(activity); }
  runtime::Event record() override { return inner_.record(); }
  void wait(const runtime::Event& event) override { inner_.wait(event); }
  bool done(const runtime::Event& event) const override { return inner_.done(event); }
  const char* name() const override { return inner_.name(); }
  runtime::Queue& underlying() override { return inner_.underlying(); }

 private:
  // The gradients of the last steps, as a rule about stale ones needs them; kept by strikes, in stream order.
  struct Past {
    std::vector<std::vector<std::uint8_t>> steps;
  };
  struct Hit {
    const Rule* rule;
    runtime::Range range;
  };

  int rank_;
  runtime::Device& device_;
  runtime::Queue& inner_;
  runtime::Clock& clock_;
  HostFaults& host_;
  std::span<RuleState* const> rules_;
  LastOps& last_;
  void keep_and_strike(RuleState& state, const runtime::Op& op, const runtime::Range& gradients);

  std::map<const RuleState*, std::unique_ptr<Past>> past_;
  std::vector<Hit> after_;  // strikes after the current launch
};

}  // namespace seeksim::faults
