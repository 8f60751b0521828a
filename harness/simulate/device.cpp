#include "harness/simulate/device.h"

#include <stdexcept>

#include "harness/input/problem.h"
#include "runtime/backend/gpu/cuda_memory.h"
#include "sim/emulated_memory.h"

namespace seeksim::harness {

void check_device(const std::string& device) {
  if (device != "cuda") return;
  if (const std::string problem = runtime::cuda_problem(); !problem.empty())
    throw BadInput("--device cuda", problem,
                   "Leave it out: kernels run on the CPU; --device emulated runs those for GPUs there.");
}

void check_fast_device(const std::string& device) {
  if (device != "cuda") return;
  if (const std::string problem = runtime::vendor_products_problem(); !problem.empty())
    throw BadInput("numerics", "\"fast\" on a GPU is cuBLASLt's: " + problem,
                   "Leave --device out: then a CPU kernel of another order stands for a vendor's.");
}

std::unique_ptr<runtime::DeviceMemory> make_device(const std::string& device) {
  if (device == "emulated") try {
      return std::make_unique<sim::EmulatedMemory>();
    } catch (const std::runtime_error& error) {
      throw BadInput("--device emulated", error.what(), "Raise the limit (ulimit -v), or leave it out.");
    }
  if (device == "cuda") return std::make_unique<runtime::CudaMemory>();
  return nullptr;
}

}  // namespace seeksim::harness
