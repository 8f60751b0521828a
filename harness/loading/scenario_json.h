// A scenario as JSON: its keys, one row each, and the scenario written back without loss, so that shrinking and sweeps
// edit values and never text.
#pragma once

#include "harness/input/keys.h"
#include "harness/scenario/scenario.h"

namespace seeksim::harness {

// The keys of a scenario. Sections are read by load.cpp, in the order in which they need each other.
const Keys<Scenario>& scenario_keys();
const Keys<GoldenPlan>& golden_keys();
const Keys<Exhibit>& museum_keys();

// scenarios/schema.json, made from the rows at the first call.
const Json& scenario_schema();

// A scenario file that loads to the same values; every key that has a value is written.
Json to_json(const Scenario& scenario);

}  // namespace seeksim::harness
