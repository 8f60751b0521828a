// "ddp" of a scenario: gradients that travel in buckets during backward, in the words of torch's
// DistributedDataParallel.
#pragma once

#include "harness/input/keys.h"
#include "harness/scenario/scenario.h"

namespace seeksim::harness {

const Keys<runtime::ZeroPlan>& ddp_keys();

// top: the scenario, when all else is read. Fills its part of the layout; refuses what it cannot be together with.
void read_ddp(const Reader& top, Scenario& scenario);

}  // namespace seeksim::harness
