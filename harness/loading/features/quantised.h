// deepspeed.zero_optimization.zero_quantized_weights and quantized_weights_block: what they go together with.
#pragma once

#include "harness/input/reader.h"
#include "harness/scenario/scenario.h"

namespace seeksim::harness {

// Refuses blocks that are no part of the norm's, and what quantised weights are not supported with.
void check_quantised(const Reader& top, Scenario& scenario);

}  // namespace seeksim::harness
