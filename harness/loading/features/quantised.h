// deepspeed.zero_optimization.zero_quantized_weights and zero_quantized_gradients, quantized_weights_block and
// quantized_gradients: what they go together with.
#pragma once

#include "harness/input/keys.h"
#include "harness/input/reader.h"
#include "harness/scenario/scenario.h"

namespace seeksim::harness {

const Keys<runtime::QuantisedGradientsPlan>& quantised_gradients_keys();

// Refuses blocks that are no part of the norm's, and what quantised weights are not supported with.
void check_quantised(const Reader& top, Scenario& scenario);

// Fills definition.quantised_gradients, where the deepspeed section turns them on; refuses groups that are no nodes of
// the tree over samples or larger than a micro-batch, and what quantised gradients are not supported with.
void read_quantised_gradients(const Reader& top, Scenario& scenario);

}  // namespace seeksim::harness
