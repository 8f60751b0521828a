// What a pipeline's run is compared with: the formulas of its bubble and of what its stages hold.
#pragma once

#include <string>

#include "harness/oracles/evidence.h"

namespace seeksim::harness {

// Over the steps that were measured after the first; 0 where there are none.
double measured_bubble(const RunRecord& run);

// (p-1)/(v*m+p-1) for GPipe, 1F1B and interleaved, v pieces of the model a stage (Narayanan et al. 2021), to `percent`
// of itself. Holds where messages are free and stages cost alike.
Finding bubble_formula(const Evidence& e, const std::string& percent);
// Micro-batches whose activations a stage holds at a time: min(p - s, m) under 1F1B, m under GPipe.
Finding live_activations(const Evidence& e, const std::string&);

}  // namespace seeksim::harness
