// Learning-rate schedules with DeepSpeed's names, defaults and values (0.19.6).
#pragma once

#include <cstdint>

#include "runtime/plan/plan.h"

namespace seeksim::runtime {

// The learning rate that the optimizer's step number `applied` (0-based: steps applied before it) uses. A pure
// function, so that a redone step and a restarted run need no counter of their own.
double learning_rate(const SchedulerPlan& plan, double optimizer_lr, std::int64_t applied);

}  // namespace seeksim::runtime
