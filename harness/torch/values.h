// Judges of numbers: replicas that should be equal, and values that are not finite.
#pragma once

#include "harness/oracles/finding.h"
#include "harness/torch/run_record.h"

namespace seeksim::harness::torch {

// Ranks that hold the same weights used the same bits in every forward pass.
Finding replicas_equal(const TorchRun& run);
// Every loss on which backward() was called is finite.
Finding losses_finite(const TorchRun& run);
// No value that is not finite came into weights or losses. Names where the first one was born. One that a skipped step
// kept out is told, and is not red.
Finding finite(const TorchRun& run);
// The mean loss of the last quarter of the steps is below that of the first.
Finding loss_falls(const TorchRun& run);

}  // namespace seeksim::harness::torch
