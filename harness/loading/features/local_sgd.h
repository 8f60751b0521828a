// "local_sgd" of a scenario: its keys, and whether it fits the rest.
#pragma once

#include "harness/input/keys.h"
#include "harness/scenario/scenario.h"

namespace seeksim::harness {

const Keys<runtime::LocalSgdPlan>& local_sgd_keys();

// top: the scenario, when all else is read. Fills definition.local_sgd; refuses what it cannot be together with.
void read_local_sgd(const Reader& top, Scenario& scenario);

}  // namespace seeksim::harness
