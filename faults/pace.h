// How much slower a straggler or a slow disk is, a while after it began.
#pragma once

#include "faults/plan.h"

namespace seeksim::faults {

// The factor of a rule of kind straggler or slow_disk (with its defaults), `elapsed` after its first match: 1 is full
// speed.
double pace_after(const Rule& rule, TimeNs elapsed);

}  // namespace seeksim::faults
