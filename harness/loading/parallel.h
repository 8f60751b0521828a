// Pipeline and tensor parallelism in a scenario: "world": {"pipeline": p, "tensor": t, ...}; what of the rest works
// along with them, and what is refused, with the reason.
#pragma once

#include "harness/input/reader.h"
#include "harness/scenario/scenario.h"

namespace seeksim::harness {

// "ranks_per_node", or what "replicas" of the model make of it; 0: unknown.
std::int64_t ranks_per_node(const Reader& world, std::int64_t nodes);
// After world_keys() have filled the plan. Returns how many ranks share the batch, the length of the data axis; 0:
// unknown. ranks: all; 0: unknown.
int read_parallel(const Reader& world, int ranks, Scenario& scenario);
// Once all else is read.
void check_parallel(const Reader& top, const Scenario& scenario);

}  // namespace seeksim::harness
