// "ema" and "stochastic_rounding" of a scenario: their keys, and whether they fit the rest.
#pragma once

#include "harness/input/keys.h"
#include "harness/scenario/scenario.h"

namespace seeksim::harness {

const Keys<runtime::OptimizerPlan>& ema_keys();

// top: the scenario, when all else is read. Fills the optimizer's part of the definition; refuses what cannot be.
void read_optimizer_state(const Reader& top, Scenario& scenario);

}  // namespace seeksim::harness
