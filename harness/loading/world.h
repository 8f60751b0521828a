// "world" of a scenario: machines, devices, disks and links. How a model is cut among the ranks stands in parallel.h.
#pragma once

#include "harness/input/keys.h"
#include "harness/scenario/scenario.h"

namespace seeksim::harness {

const Keys<Scenario>& world_keys();

// Returns the number of ranks; 0: unknown.
int read_world(const Reader& world, Scenario& scenario);

// "steady" of the world, when it is known what kind of run this is.
void settle_steady(const Reader& top, Scenario& scenario);

}  // namespace seeksim::harness
