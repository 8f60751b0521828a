// --verify-determinism: the same seed twice. Equal fingerprints, or the first Op in which the two runs differ.
#pragma once

#include <string>

#include "harness/simulate/simulate.h"

namespace seeksim::harness {

// Empty when both runs did the same. The scenario must have been run with world.verify.
std::string first_difference(const Simulation& a, const RunRecord& run_a, const Simulation& b, const RunRecord& run_b);

}  // namespace seeksim::harness
