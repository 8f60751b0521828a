// Judges of what people forget in training scripts: samples, weights that never move, gradients that are never cleared,
// modes, clipping, accumulation. From what the hooks of pytorch/python/seeksim_torch/habits.py wrote down.
#pragma once

#include <string_view>

#include "harness/torch/run_record.h"
#include "harness/verdict/checks.h"

namespace seeksim::harness::torch {

Finding samples(const TorchRun& run);
Finding weights_move(const TorchRun& run);
Finding gradients_cleared(const TorchRun& run);
Finding train_mode(const TorchRun& run);
Finding clips_in_time(const TorchRun& run);
Finding losses_divided(const TorchRun& run);

// Samples that all ranks together get in the first batch of a loader that is trained on; 0: there is none.
std::size_t samples_together(const TorchRun& run);
// Whether a rank wrote down that this part of torch is used, or that this switch took effect.
bool has_sight(const TorchRun& run, pytorch::SightKind kind, std::string_view name);

}  // namespace seeksim::harness::torch
