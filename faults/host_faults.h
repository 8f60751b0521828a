// What rules do to the host of a rank on its way into an operation: hang it, hold it up, or end its process.
#pragma once

#include <vector>

#include "faults/trigger.h"

namespace seeksim::faults {

class HostFaults {
 public:
  // watcher: hears of every Op, if it is set; outlives this.
  HostFaults(int rank, runtime::Clock& clock, std::vector<RuleState*> rules, const FaultPlan::Watcher& watcher)
      : rank_(rank), clock_(clock), rules_(std::move(rules)), watcher_(watcher) {}

  // The host is about to enter `op`. May block for a while or for ever; may throw RankDied. What it returns is for the
  // operation to do: die while it is in flight, or after it.
  runtime::DiesAt enter(const runtime::Op& op);

  // Whether a rule names something that the rank does by itself, so that all of it has to be looked at.
  bool watches_own_acts() const;

  // The process ends here. Destructors still run on the way out, as they never do in a killed process: from now on
  // every seam of this rank swallows what they ask for.
  [[noreturn]] void die();
  bool gone() const { return gone_; }

 private:
  runtime::DiesAt apply(RuleState& state, const runtime::Op& op, TimeNs now);

  int rank_;
  runtime::Clock& clock_;
  std::vector<RuleState*> rules_;  // those that can concern this rank
  const FaultPlan::Watcher& watcher_;
  bool gone_ = false;
};

}  // namespace seeksim::faults
