// "recovery" and "checkpoint" of a scenario: read, held against each other, written back.
#pragma once

#include "harness/input/reader.h"
#include "harness/scenario/scenario.h"

namespace seeksim::harness {

void read_recovery(const Reader& recovery, Scenario& scenario);
void read_checkpoint(const Reader& checkpoint, Scenario& scenario);
// After both and the world: what cannot be together.
void check_recovery(const Reader& top, const Scenario& scenario);

Json recovery_json(const runtime::RecoveryPlan& plan);
Json checkpoint_json(const runtime::CheckpointPlan& plan);

}  // namespace seeksim::harness
