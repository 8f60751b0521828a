// Which activations are computed again in backward: DeepSpeed's "activation_checkpointing", whose number_checkpoints
// counts segments, and seeksim's own "checkpointing", which names their length or the layers.
#pragma once

#include "harness/input/keys.h"
#include "harness/scenario/scenario.h"

namespace seeksim::harness {

// "checkpointing".
const Keys<runtime::CheckpointingPlan>& checkpointing_keys();
// "activation_checkpointing" of the "deepspeed" section.
const Keys<runtime::CheckpointingPlan>& activation_checkpointing_keys();

// top: the scenario. To be read after the model.
void read_checkpointing(const Reader& top, Scenario& scenario);

}  // namespace seeksim::harness
