// The short string by which a run is replayed exactly.
//
// The string holds the world's seed and the schedule, and which scenario they belong to: letters and digits (base 32
// without i, l, o, u), the last two of them a checksum. With the scenario it is all that decides a run's order.
#pragma once

#include <string>

#include "harness/input/json.h"
#include "harness/scenario/scenario.h"

namespace seeksim::harness {

// What a schedule belongs to: a hash of all of the scenario but its name, reason, expectation, seed and schedule.
std::uint32_t identity_of(const Scenario& scenario);

std::string schedule_string(const Scenario& scenario, std::uint32_t version = sim::kDecisionsVersion);
// Sets the scenario's seed and schedule. Throws BadInput: damaged, of another version, of another scenario.
void apply_schedule(const std::string& text, Scenario& scenario);

}  // namespace seeksim::harness
