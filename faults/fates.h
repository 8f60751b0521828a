// Fates of pieces: what the rules of a plan do to one message. A fate is handed to the transport by address and lives
// as long as the plan; equal combinations share one.
#pragma once

#include <map>
#include <vector>

#include "faults/link_fault.h"
#include "faults/trigger.h"

namespace seeksim::faults {

// message_drop and message_corrupt: one fate serves all firings of a rule.
struct MessageFault {
  explicit MessageFault(RuleState& state);
  RuleState& state;
  runtime::PieceFate fate;
};

// If several rules meet on one piece, delays add up, slowness multiplies and losses prevail. Two cuts that overlap
// become one; otherwise the earlier one counts (a piece meets one window at most).
class CombinedFates {
 public:
  const runtime::PieceFate* combine(const std::vector<const runtime::PieceFate*>& parts);
  // Copies what the transport noted on a combination (PieceFate::touched_ns) to the cuts that it is made of.
  void pass_on_touches() const;

 private:
  std::map<std::vector<const runtime::PieceFate*>, runtime::PieceFate> known_;
};

}  // namespace seeksim::faults
