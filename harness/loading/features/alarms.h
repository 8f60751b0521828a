// "alarms" of a scenario: limits on what a monitoring board shows.
#pragma once

#include "harness/input/keys.h"
#include "harness/scenario/alarms.h"

namespace seeksim::harness {

const Keys<Alarms>& alarm_keys();

}  // namespace seeksim::harness
