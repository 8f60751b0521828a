// The small trainings that the judge's tests run: names as runtime/rules/mutants.inl has them.
#pragma once

#include <string>
#include <vector>

#include "harness/scenario/scenario.h"

namespace seeksim::harness::testing {

// Two layers, a hundred tokens a step, one rank's golden in milliseconds. sets: as --set. Throws std::out_of_range
// where there is no such configuration.
Scenario configuration(const std::string& name, const std::vector<std::string>& sets = {});
std::vector<std::string> configuration_names();

}  // namespace seeksim::harness::testing
