// One fault by chance, for whoever decides himself how many there are and when.
#pragma once

#include "harness/scenario/scenario.h"
#include "sim/random.h"

namespace seeksim::harness {

// With numbers that recovery should survive, at a time before the horizon.
faults::Rule draw_fault(const Scenario& scenario, faults::FaultKind kind, sim::Random& random, runtime::TimeNs horizon);

// How many ranks recovery may have to give up for it.
int ranks_lost(const Scenario& scenario, const faults::Rule& rule);

}  // namespace seeksim::harness
