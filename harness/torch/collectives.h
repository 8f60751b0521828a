// Whether all members of a group meant the same collectives.
#pragma once

#include "harness/oracles/finding.h"
#include "harness/torch/run_record.h"

namespace seeksim::harness::torch {

// Every collective of every group, as each member recorded it: operation, reduction, type, size and root agree. Names
// the odd ones out, and where in the script both sides stood.
Finding collectives_match(const TorchRun& run);
// How many collectives at least two ranks recorded.
std::size_t collectives_compared(const TorchRun& run);

}  // namespace seeksim::harness::torch
