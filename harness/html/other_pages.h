// Pages of commands that run no single scenario: a study, a plan, a hang. Each is made of the JSON that its command
// writes, and has no number that is not in it.
#pragma once

#include <string>
#include <vector>

#include "harness/input/json.h"

namespace seeksim::harness::html {

// study: "seeksim-study-1". pictures: SVG, made by the study itself.
std::string study_page(const Json& study, const std::vector<std::string>& pictures, const std::string& command);
// plan: "seeksim-plan-1".
std::string plan_page(const Json& plan, const std::string& command);
// hang: "seeksim-hang-1".
std::string hang_page(const Json& hang, const std::string& command);

}  // namespace seeksim::harness::html
