// The "deepspeed" section: DeepSpeed's keys, defaults and batch arithmetic (0.19.8), so that a ds_config.json can be
// pasted in. What it asks for and this version cannot do is refused by name; what has no effect here is said once.
#pragma once

#include <string>
#include <vector>

#include "harness/loading/deepspeed/deepspeed_keys.h"

namespace seeksim::harness {

// Fills the scenario's optimizer, schedule, clipping and batch. `ranks` is the data-parallel size; 0: unknown.
void read_deepspeed(const Reader& section, int ranks, Scenario& scenario);

// The section that gives these values.
Json deepspeed_json(const Scenario& scenario);

}  // namespace seeksim::harness
