// deepspeed.zero_optimization.zero_quantized_weights and quantized_weights_block: what they go together with.
#pragma once

#include <string>

#include "harness/input/reader.h"
#include "harness/scenario/scenario.h"

namespace seeksim::harness {

// Refuses blocks that are no part of the norm's, and what quantised weights are not supported with.
void check_quantised(const Reader& top, Scenario& scenario);

// Refuses --device and --backend where weights are quantised and would be on GPUs.
void check_quantised_device(const Scenario& scenario, const std::string& device, const std::string& backend);

}  // namespace seeksim::harness
