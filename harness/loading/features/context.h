// Ranks that share the tokens of each sample, and gradients that can be cut by tokens: what a scenario must say, and
// what does not go together with them.
#pragma once

#include "harness/input/reader.h"
#include "harness/scenario/scenario.h"

namespace seeksim::harness {

// Of the model alone: whether its gradients can be summed as it says.
void check_gradient_sums(const Reader& model, const runtime::ModelPlan& plan);
// With all the rest.
void check_context(const Reader& top, const Scenario& scenario);

}  // namespace seeksim::harness
