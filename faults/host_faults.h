// What rules do to the host of a rank on its way into an operation: hang it, delay it, end its process, take its device
// or its data away.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "faults/trigger.h"

namespace seeksim::faults {

class HostFaults {
 public:
  // watcher: if set, hears of every Op; must outlive this. machine_dies: kills the other ranks of this machine, when
  // a rule kills all of it.
  HostFaults(int rank, runtime::Clock& clock, std::vector<RuleState*> rules, const FaultPlan::Watcher& watcher,
             std::function<void(const RuleState&)> machine_dies = {})
      : rank_(rank),
        clock_(clock),
        rules_(std::move(rules)),
        watcher_(watcher),
        machine_dies_(std::move(machine_dies)) {}

  // The host is about to enter `op`. May block for a while or for ever; may throw RankDied. The result says whether the
  // rank dies while the operation is in flight, or after it.
  runtime::DiesAt enter(const runtime::Op& op);

  // Throws the device's failure, each time, since its context is gone. A failure that is not sticky is thrown once.
  void check_device();
  bool device_lost() const { return lost_.has_value(); }

  // Whether a rule can strike at something that the rank does by itself, so that all such acts have to be checked.
  bool watches_own_acts() const;

  // The process ends here. Destructors still run on the way out, which they would not in a killed process, so from now
  // on every seam of this rank ignores what they ask for.
  [[noreturn]] void die();
  bool gone() const { return gone_; }

 private:
  runtime::DiesAt apply(RuleState& state, const runtime::Op& op, TimeNs now);
  void fail_device(const Rule& rule, const runtime::Op& op);

  int rank_;
  runtime::Clock& clock_;
  std::vector<RuleState*> rules_;  // those that can concern this rank
  const FaultPlan::Watcher& watcher_;
  std::function<void(const RuleState&)> machine_dies_;
  std::optional<runtime::SeamError> lost_;
  bool lost_for_good_ = false;
  bool gone_ = false;
};

}  // namespace seeksim::faults
