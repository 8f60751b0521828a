// world.shard_group: what it goes together with.
#pragma once

#include "harness/input/reader.h"
#include "harness/scenario/scenario.h"

namespace seeksim::harness {

// Refuses shard groups that the ranks cannot be cut into, and what they are not supported with.
void check_shard_groups(const Reader& top, const Scenario& scenario);

}  // namespace seeksim::harness
