// What the survivors of a failure do, as a pure function of what they agreed on.
#pragma once

#include <string>
#include <utility>
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

// history: earlier attempts, oldest first. Depends on nothing but its arguments.
Decision decide(const RecoveryPlan& plan, const Agreement& agreement, const Diagnosis& diagnosis, std::int64_t step,
                const std::vector<FailedAttempt>& history);

// The rank to evict for a link that fails again: the one end that all accused links share, else the sender's.
int rank_to_evict(const std::vector<std::pair<int, int>>& links);

}  // namespace seeksim::runtime
