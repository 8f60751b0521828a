// Faults by chance: all those of a run of a fault plan, or one, for a caller that decides how many there are and when.
#pragma once

#include <cstdint>
#include <vector>

#include "harness/scenario/scenario.h"
#include "sim/random.h"

namespace seeksim::harness {

// The rules of run `number`: the same for the same seed, whatever else is drawn. `horizon_ns`: how long faults come.
std::vector<faults::Rule> draw_faults(const Scenario& scenario, std::int64_t number, runtime::TimeNs horizon_ns);

// With numbers that recovery should survive, at a time before the horizon.
faults::Rule draw_fault(const Scenario& scenario, faults::FaultKind kind, sim::Random& random, runtime::TimeNs horizon);

// How many ranks recovery may have to give up for it.
int ranks_lost(const Scenario& scenario, const faults::Rule& rule);

}  // namespace seeksim::harness
