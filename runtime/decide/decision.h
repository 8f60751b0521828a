// What the survivors of a failure do, as a pure function of what they agreed on.
#pragma once

#include <utility>
#include <vector>

#include "runtime/decide/recovery_rule.h"

namespace seeksim::runtime {

// history: earlier attempts, oldest first. Depends on nothing but its arguments.
Decision decide(const RecoveryPlan& plan, const Agreement& agreement, const Diagnosis& diagnosis, std::int64_t step,
                const std::vector<FailedAttempt>& history);

// The rank to evict for a link that fails again: the one end that all accused links share, else the sender's.
int rank_to_evict(const std::vector<std::pair<int, int>>& links);

}  // namespace seeksim::runtime
