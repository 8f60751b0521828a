// What ZeRO promises in memory and traffic, for the stage, world and accumulation of a scenario: sums over the model's
// sizes as the papers write them, with a shard taken to be its even share, not as the runtime cuts it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "harness/scenario/scenario.h"

namespace seeksim::harness {

// One line of a budget, in bytes of the rank that needs most.
struct BudgetLine {
  std::string name;      // of memory: the tag, or "host <tag>"; of traffic: the kind of operation
  double bytes = 0;      // as the formula has it
  double slack = 0;      // for bounds on 1024-element blocks
  bool at_most = false;  // an upper bound only
  std::string formula;   // "4P/N"
};

// Peaks by tag, for the tags that have a formula. What the others hold: what_is().
std::vector<BudgetLine> memory_budget(const Scenario& scenario);
// Bytes sent in a whole run of `steps` steps, of which `applied` changed the parameters, without a step taken again.
std::vector<BudgetLine> traffic_budget(const Scenario& scenario, std::int64_t steps, std::int64_t applied);

// Collectives of a whole run, over all ranks: as many at most, in `bytes`.
std::vector<BudgetLine> calls_budget(const Scenario& scenario, std::int64_t steps);

// What memory under a tag is, for people.
const char* what_is(runtime::MemoryTag tag);

}  // namespace seeksim::harness
