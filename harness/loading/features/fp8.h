// "fp8" of a scenario: its keys, and whether it fits the rest.
#pragma once

#include "harness/input/keys.h"
#include "harness/scenario/scenario.h"

namespace seeksim::harness {

const Keys<runtime::Fp8Plan>& fp8_keys();

// top: the scenario, when all else is read. Fills definition.fp8; refuses what it cannot be together with.
void read_fp8(const Reader& top, Scenario& scenario);

}  // namespace seeksim::harness
