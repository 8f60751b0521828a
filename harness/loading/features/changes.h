// "changes": the configuration changes in the middle of a training.
#pragma once

#include "harness/input/keys.h"
#include "harness/input/reader.h"
#include "harness/scenario/scenario.h"

namespace seeksim::harness {

const Keys<runtime::Change>& change_keys();

// After "steps" is read.
void read_changes(const Reader& top, Scenario& scenario);
// Holds golden.undo_changes against the changes, once both are read.
void check_undone(const Reader& golden, const Scenario& scenario);
Json changes_json(const Scenario& scenario);

}  // namespace seeksim::harness
