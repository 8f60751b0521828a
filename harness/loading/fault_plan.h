// "fault_plan" of a scenario: its keys, and what they say held against the rest.
#pragma once

#include "harness/input/keys.h"
#include "harness/scenario/scenario.h"

namespace seeksim::harness {

const Keys<PlannedFaults>& fault_plan_keys();
// After the world and the steps, which its lists are held against.
void read_fault_plan(const Reader& top, Scenario& scenario);

}  // namespace seeksim::harness
