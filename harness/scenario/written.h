// Values as a scenario's file writes them, which goldens and reports quote too.
#pragma once

#include "harness/input/json.h"
#include "harness/scenario/scenario.h"

namespace seeksim::harness {

// "data": where the tokens come from.
Json data_json(const Scenario& scenario);
// "dropout" of the model: one rate for all places, or one for each.
Json dropout_json(const runtime::DropoutPlan& plan);

}  // namespace seeksim::harness
