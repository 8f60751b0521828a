// DeepSpeed's "offload_optimizer", "offload_param" and "aio": read, refused where DeepSpeed refuses, written back.
#pragma once

#include "harness/input/keys.h"
#include "harness/scenario/scenario.h"

namespace seeksim::harness {

const Keys<runtime::OffloadOptimizerPlan>& offload_optimizer_keys();
const Keys<runtime::OffloadParamPlan>& offload_param_keys();
const Keys<runtime::AioPlan>& aio_keys();

// section: "deepspeed". The stage has been read.
void read_offload(const Reader& section, Scenario& scenario);
void write_offload(const Scenario& scenario, Json& section);

// Whether a key of zero_optimization, or "aio", acts in this scenario.
bool offload_key_acts(const std::string& key, const Scenario& scenario);

}  // namespace seeksim::harness
