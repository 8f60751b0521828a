// The types that a ds_config asks for ("fp16", "bf16", "data_types") and the loss scaler that goes with them, with
// DeepSpeed's keys and defaults; and "grad_scaler", seeksim's own key, for torch's GradScaler in its place.
#pragma once

#include "harness/input/keys.h"
#include "harness/scenario/scenario.h"

namespace seeksim::harness {

const Keys<runtime::Definition>& fp16_keys();
const Keys<runtime::Definition>& bf16_keys();
const Keys<runtime::Definition>& data_types_keys();
const Keys<runtime::LossScalerPlan>& grad_scaler_keys();

// deepspeed: the section. scenario_keys: the scenario itself, for "grad_scaler". Fills definition.precision and
// .scaler.
void read_precision(const Reader& deepspeed, const Reader& scenario_keys, Scenario& scenario);

}  // namespace seeksim::harness
