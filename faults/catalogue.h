// A fault's row of faults.inl: one table from which names, parameters, defaults and validation come, so that what
// `seeksim list faults` prints, what a scenario may say and what the code does cannot drift apart.
#pragma once

#include "faults/plan.h"

namespace seeksim::faults {

inline const FaultInfo& info(FaultKind kind) { return catalogue()[std::size_t(kind)]; }

}  // namespace seeksim::faults
