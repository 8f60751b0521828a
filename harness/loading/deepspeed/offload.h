// DeepSpeed's "offload_optimizer", "offload_param" and "aio": read, refused where DeepSpeed refuses, written back.
#pragma once

#include "harness/input/reader.h"
#include "harness/scenario/scenario.h"

namespace seeksim::harness {

// section: "deepspeed". The stage has been read.
void read_offload(const Reader& section, Scenario& scenario);
void write_offload(const Scenario& scenario, Json& section);

// Whether a key of zero_optimization, or "aio", acts in this scenario.
bool offload_key_acts(const std::string& key, const Scenario& scenario);

// "storage" and the host's part of "device", of "world".
void read_storage(const Reader& world, sim::WorldPlan& plan);
void write_storage(const sim::WorldPlan& plan, Json& world);

}  // namespace seeksim::harness
