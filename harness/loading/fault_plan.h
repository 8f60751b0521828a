// "fault_plan" of a scenario: read, held against the rest of it, written back.
#pragma once

#include "harness/input/reader.h"
#include "harness/scenario/scenario.h"

namespace seeksim::harness {

// After the world and the steps, which its lists are held against.
void read_fault_plan(const Reader& top, Scenario& scenario);
Json fault_plan_json(const PlannedFaults& plan);

}  // namespace seeksim::harness
