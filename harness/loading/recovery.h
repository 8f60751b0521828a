// "recovery" and "checkpoint" of a scenario: their keys, and whether they fit the rest.
#pragma once

#include "harness/input/keys.h"
#include "harness/scenario/scenario.h"

namespace seeksim::harness {

const Keys<runtime::RecoveryPlan>& recovery_keys();
const Keys<runtime::CheckpointPlan>& checkpoint_keys();

void read_recovery(const Reader& recovery, Scenario& scenario);
void read_checkpoint(const Reader& checkpoint, Scenario& scenario);
// After both and the world: what cannot be together.
void check_recovery(const Reader& top, const Scenario& scenario);

}  // namespace seeksim::harness
