// "compression" of a scenario: its keys, and whether it fits the rest.
#pragma once

#include <string>

#include "harness/input/keys.h"
#include "harness/scenario/scenario.h"

namespace seeksim::harness {

const Keys<runtime::CompressionPlan>& compression_keys();

// top: the scenario, when all else is read. Fills definition.compression; refuses what it cannot be together with.
void read_compression(const Reader& top, Scenario& scenario);

}  // namespace seeksim::harness
