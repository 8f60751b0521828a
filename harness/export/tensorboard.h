// A run for TensorBoard (--tensorboard): what its steps reported, by tag.
#pragma once

#include <string>

#include "harness/record/run_record.h"

namespace seeksim::harness {

// DIR/events.out.tfevents.0.seeksim: train/loss, train/grad_norm, train/lr, train/loss_scale, train/skipped and
// time/step_s by step, memory/peak_bytes/TAG at the last one. Times are virtual ones, since 1970. Throws BadInput.
void write_tensorboard(const std::string& folder, const RunRecord& run);

}  // namespace seeksim::harness
