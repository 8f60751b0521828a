// What only the CPU can compute: there are no kernels of it for GPUs.
#pragma once

#include <string>

#include "harness/scenario/scenario.h"

namespace seeksim::harness {

// Where ranks compute. device: as --device says; backend: as --backend says.
struct ComputesOn {
  std::string device, backend;
  bool gpus() const { return device != "cpu" || backend == "nccl"; }
  std::string option() const { return device != "cpu" ? "--device " + device : "--backend " + backend; }
};

// Why GPUs cannot run this scenario; empty: they can.
std::string cpu_only(const Scenario& scenario);
// Throws BadInput where they would have to.
void check_device(const Scenario& scenario, const ComputesOn& on);

}  // namespace seeksim::harness
