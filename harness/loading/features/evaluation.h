// Evaluation between steps: its keys, and what it cannot be together with.
#pragma once

#include "harness/input/keys.h"
#include "harness/input/reader.h"
#include "harness/scenario/scenario.h"

namespace seeksim::harness {

const Keys<Scenario>& evaluation_keys();
bool has_evaluation(const Scenario& scenario);
// The section, and data.held_out_bytes, which was read before. After the batch is known.
void read_evaluation(const Reader& top, Scenario& scenario);

}  // namespace seeksim::harness
