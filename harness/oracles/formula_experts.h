// What an expert group adds to the formulas of memory and traffic (world.expert above 1).
#pragma once

#include <cstdint>
#include <vector>

#include "harness/oracles/formula_sizes.h"
#include "harness/oracles/formulas.h"
#include "runtime/comm/expert_group.h"

namespace seeksim::harness {

// The group that the first rank is in, of micro-batches as large as they get. Not connected.
runtime::ExpertGroup expert_group(const FormulaSizes& sizes);

// Bytes sent in so many steps: gradients of what is no expert's, and rows of tokens.
std::vector<BudgetLine> group_traffic(const FormulaSizes& sizes, std::int64_t steps);

// Calls of the same, over all ranks, at most. micro_batches: of the rank that has most, where gradients are
// replicated. buckets: of a micro-step, at most.
std::vector<BudgetLine> group_calls(const FormulaSizes& sizes, std::int64_t steps, int micro_batches, double buckets);

}  // namespace seeksim::harness
