// The "deepspeed" section: DeepSpeed's keys, defaults and batch arithmetic (0.19.6), so that a ds_config.json can be
// pasted in. What it asks for and this version cannot do is refused by name; what has no effect here is said once.
#pragma once

#include <string>
#include <vector>

#include "harness/loading/deepspeed/deepspeed_keys.h"

namespace seeksim::harness {

// Reports and removes every "auto" of the section: Hugging Face's Trainer fills those, and it is not here.
void refuse_auto(Document& document, std::vector<Problem>& problems);

// Fills the scenario's optimizer, schedule, clipping and batch. `ranks` is the data-parallel size; 0: unknown.
void read_deepspeed(const Reader& section, int ranks, Scenario& scenario);

// The section that gives these values.
Json deepspeed_json(const Scenario& scenario);

}  // namespace seeksim::harness
