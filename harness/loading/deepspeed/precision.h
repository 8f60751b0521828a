// The types that a ds_config asks for ("fp16", "bf16", "data_types") and the loss scaler that goes with them, with
// DeepSpeed's keys and defaults; and "grad_scaler", seeksim's own key, for torch's GradScaler in its place.
#pragma once

#include "harness/input/reader.h"
#include "harness/scenario/scenario.h"

namespace seeksim::harness {

// deepspeed: the section. scenario_keys: the scenario itself, for "grad_scaler". Fills definition.precision and
// .scaler.
void read_precision(const Reader& deepspeed, const Reader& scenario_keys, Scenario& scenario);

// Adds to the "deepspeed" section, and to the scenario, what gives these values.
void write_precision(const Scenario& scenario, Json& deepspeed);
void write_grad_scaler(const Scenario& scenario, Json& scenario_json);

}  // namespace seeksim::harness
