// What ZeRO promises in memory and traffic, for the stage, world and accumulation of a scenario: sums over the model's
// sizes as the papers write them, with a shard taken to be its even share, not as the runtime cuts it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "harness/oracles/formula_sizes.h"
#include "harness/scenario/scenario.h"

namespace seeksim::harness {

// Peaks by tag, for the tags that have a formula. What the others hold: what_is().
std::vector<BudgetLine> memory_budget(const Scenario& scenario);
// Bytes sent in a whole run of `steps` steps, of which `applied` changed the parameters, without a step taken again.
std::vector<BudgetLine> traffic_budget(const Scenario& scenario, std::int64_t steps, std::int64_t applied);

// Collectives of a whole run, over all ranks: as many at most, in `bytes`.
std::vector<BudgetLine> calls_budget(const Scenario& scenario, std::int64_t steps);

// What memory under a tag is, for people.
const char* what_is(runtime::MemoryTag tag);

}  // namespace seeksim::harness
