// "compression" of a scenario: its keys, and whether it fits the rest.
#pragma once

#include <string>

#include "harness/input/keys.h"
#include "harness/scenario/scenario.h"

namespace seeksim::harness {

const Keys<runtime::CompressionPlan>& compression_keys();

// top: the scenario, when all else is read. Fills definition.compression; refuses what it cannot be together with.
void read_compression(const Reader& top, Scenario& scenario);

// Throws BadInput where gradients are compressed, for which there are kernels on the CPU only. device: as --device
// says; backend: as --backend says.
void check_compression_device(const Scenario& scenario, const std::string& device, const std::string& backend);

}  // namespace seeksim::harness
