// "fault_plan" of a scenario: its keys, and whether they fit the rest.
#pragma once

#include "harness/input/keys.h"
#include "harness/scenario/scenario.h"

namespace seeksim::harness {

const Keys<PlannedFaults>& fault_plan_keys();
// Call it after the world and the steps were read: its lists are checked against them.
void read_fault_plan(const Reader& top, Scenario& scenario);

}  // namespace seeksim::harness
