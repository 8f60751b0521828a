// "platform" of the world: whole collectives take what a cluster was measured to take, in place of what links say.
#pragma once

#include "harness/input/keys.h"
#include "harness/scenario/scenario.h"

namespace seeksim::harness {

const Keys<PlatformPlan>& platform_keys();

// Reads the files that it names and puts the times into scenario.world. When the world is read.
void read_platform(const Reader& world, Scenario& scenario);

}  // namespace seeksim::harness
