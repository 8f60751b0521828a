// Which gradients of a worker enter which step, where gradients come late (StalenessPlan): pure functions of the plan.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/plan/plan.h"

namespace seeksim::runtime {

// A worker's clock counts the steps that are applied. By how many of them its gradient of clock `made` is late: 0 to
// staleness.bound.
int delay_of(const Definition& definition, std::int64_t worker, std::int64_t made);

// The clocks whose gradients enter the step of `clock`, the oldest first. No gradient overtakes an earlier one of its
// worker, so each enters at staleness.bound at most, and each exactly once.
std::vector<std::int64_t> arrivals(const Definition& definition, std::int64_t worker, std::int64_t clock);

}  // namespace seeksim::runtime
