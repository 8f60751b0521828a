#include "harness/loading/features/cpu_only.h"

#include <fmt/format.h>

#include <optional>

#include "harness/input/problem.h"
#include "harness/loading/features/samples.h"

namespace seeksim::harness {
namespace {

struct CpuOnly {
  bool used;
  const char *key, *why;
};
std::optional<CpuOnly> first_of(const Scenario& scenario) {
  const CpuOnly all[] = {
      {scenario.train.definition.compression.on(), "compression",
       "there are no kernels for GPUs that compress gradients"},
      {scenario.train.definition.staleness.on(), "staleness", "there are no kernels for GPUs that let gradients wait"},
      {scenario.train.definition.quantised.on(), "zero_quantized_weights",
       "there are no kernels for GPUs that quantise weights"},
      {scenario.train.definition.quantised_gradients.on(), "zero_quantized_gradients",
       "there are no kernels for GPUs that quantise gradients"},
      {has_packing(scenario), "data.packing", "positions of packed samples are counted on the CPU"},
  };
  for (const CpuOnly& one : all)
    if (one.used) return one;
  return std::nullopt;
}

}  // namespace

std::string cpu_only(const Scenario& scenario) {
  const std::optional<CpuOnly> found = first_of(scenario);
  return found ? found->why : "";
}

void check_device(const Scenario& scenario, const ComputesOn& on) {
  const std::optional<CpuOnly> found = first_of(scenario);
  if (!on.gpus() || !found) return;
  throw BadInput(on.option(), fmt::format("not supported: {}", found->why),
                 fmt::format("Compute on the CPU, or remove {}.", found->key));
}

}  // namespace seeksim::harness
