// "schedule" of a scenario: which fiber or queue runs next among those that can.
#pragma once

#include "harness/input/keys.h"
#include "harness/scenario/scenario.h"

namespace seeksim::harness {

const Keys<sim::Schedule>& schedule_keys();
void read_schedule(const Reader& top, Scenario& scenario);

}  // namespace seeksim::harness
