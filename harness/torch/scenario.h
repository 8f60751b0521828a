// Scenarios with "torch" instead of model, data and world.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "harness/input/keys.h"
#include "harness/torch/plan.h"

namespace seeksim::harness::torch {

const Keys<TorchPlan>& torch_keys();
const Keys<TorchScenario>& torch_scenario_keys();

// examples/pytorch/torch.schema.json, made from the rows at the first call.
const Json& torch_scenario_schema();
std::string torch_schema_text();

// Reads `file` ("": none, all is as by default) with the settings "key.path=value" applied. np: --np, which the
// scenario's own np has to equal where both are given. Throws BadInput with every problem.
TorchScenario load_torch_scenario(const std::string& file, const std::vector<std::string>& sets,
                                  const std::optional<int>& np);
TorchScenario load_torch_scenario_text(std::string_view text, const std::string& file,
                                       const std::vector<std::string>& sets, const std::optional<int>& np);

// The scenario as a file that loads to the same values.
Json to_json(const TorchScenario& scenario);

}  // namespace seeksim::harness::torch
