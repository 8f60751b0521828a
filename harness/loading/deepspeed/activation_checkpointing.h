// Which activations are computed again in backward: DeepSpeed's "activation_checkpointing", whose number_checkpoints
// counts segments, and seeksim's own "checkpointing", which names their length or the layers.
#pragma once

#include "harness/input/reader.h"
#include "harness/scenario/scenario.h"

namespace seeksim::harness {

// top: the scenario. To be read after the model.
void read_checkpointing(const Reader& top, Scenario& scenario);

// Adds to a scenario that is written back, its "deepspeed" section included, what gives these values.
void write_checkpointing(const runtime::CheckpointingPlan& plan, Json& scenario);

}  // namespace seeksim::harness
