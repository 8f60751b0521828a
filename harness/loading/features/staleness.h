// "staleness" of a scenario: its keys, and whether it fits the rest.
#pragma once

#include "harness/input/keys.h"
#include "harness/scenario/scenario.h"

namespace seeksim::harness {

const Keys<runtime::StalenessPlan>& staleness_keys();

// top: the scenario, when all else is read. Fills definition.staleness; refuses what it cannot be together with.
void read_staleness(const Reader& top, Scenario& scenario);

}  // namespace seeksim::harness
