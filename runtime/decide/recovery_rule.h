// A recovery policy of one's own: what the survivors of a failure do. How state comes back is one of the built-in ways.
#pragma once

#include <string>
#include <vector>

#include "runtime/detect/diagnosis.h"
#include "runtime/plan/plan.h"
#include "runtime/seams/seams.h"

namespace seeksim::runtime {

// A recovery that came to a decision, as all survivors remember it.
struct FailedAttempt {
  std::int64_t step = 0;
  Diagnosis diagnosis;
};

struct Decision {
  bool stop = false;
  std::string why;             // of stopping, or of an eviction
  std::vector<int> evicted;    // dead or excluded, ascending
  std::vector<int> survivors;  // ascending
};

// What all survivors know of a failure.
struct Failure {
  const RecoveryPlan& plan;
  const Agreement& agreement;  // who answered, and what; who is dead
  const Diagnosis& diagnosis;
  std::int64_t step;                          // that failed
  const std::vector<FailedAttempt>& history;  // earlier attempts, oldest first
};

class RecoveryRule {
 public:
  virtual ~RecoveryRule() = default;

  // How those who go on get their state: retry_step keeps every member, rebuild_and_redo takes it from peers' copies,
  // restart_from_checkpoint from files.
  virtual RecoveryPolicy mechanism() const { return RecoveryPolicy::rebuild_and_redo; }

  // Who goes on, in Decision::survivors; or that the run stops, and why. Every survivor asks by itself, so the answer
  // depends on nothing but the arguments. standard: what the built-in policy decides. Survivors have to be members that
  // answered; who else was a member is evicted. It is not asked where members have committed different steps: then the
  // run stops.
  virtual Decision decide(const Failure& failure, const Decision& standard) const = 0;
};

}  // namespace seeksim::runtime
