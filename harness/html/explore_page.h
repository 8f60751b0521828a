// The page of an exploration: what was tried, what it reached, and each finding with the command that shows it again.
// It is made of the report of `explore`, and has no number that is not in it.
#pragma once

#include <string>

#include "harness/input/json.h"

namespace seeksim::harness::html {

// explored: "seeksim-explore-1". command: that explores again.
std::string explore_page(const Json& explored, const std::string& command);

}  // namespace seeksim::harness::html
