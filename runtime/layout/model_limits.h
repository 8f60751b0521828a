// What a model can be at all, whatever it is cut into: asked of what a scenario or a checkpoint says, before a
// parameter is counted.
#pragma once

#include <string>

#include "runtime/plan/plan.h"

namespace seeksim::runtime {

// Whether its family is built in, or one of the user's that came with it.
bool is_known(const ModelPlan& model);
// Why there can be no such model (sizes out of range, heads that do not divide); empty: there can.
std::string problem(const ModelPlan& model);

}  // namespace seeksim::runtime
