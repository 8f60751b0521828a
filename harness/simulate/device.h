// Where ranks that are simulated compute: --device.
#pragma once

#include <memory>
#include <string>

#include "runtime/host/device_memory.h"

namespace seeksim::harness {

// Throws BadInput where the machine or the program has no such device.
void check_device(const std::string& device);
// The same of fast arithmetic there.
void check_fast_device(const std::string& device);
// Null for the CPU.
std::unique_ptr<runtime::DeviceMemory> make_device(const std::string& device);

}  // namespace seeksim::harness
