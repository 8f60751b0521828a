// DeepSpeed's batch arithmetic: train_batch_size, micro-batch and accumulation from any two of them.
#pragma once

#include "harness/input/reader.h"
#include "harness/scenario/scenario.h"

namespace seeksim::harness {

// ranks: that share the batch; 0: unknown.
void read_batch(const Reader& section, std::int64_t ranks, Scenario& scenario);

}  // namespace seeksim::harness
