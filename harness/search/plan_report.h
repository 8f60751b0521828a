// What a plan looks like: its table, the ledgers of a row, and its rows as JSON.
#pragma once

#include <string>

#include "harness/search/planner.h"

namespace seeksim::harness {

// 53.62 GB: powers of ten, as vendors count.
std::string decimal_text(double bytes, int digits = 4);
// A line a configuration: seeksim's peak, DeepSpeed's and the platform's estimates, whether each fits into
// memory_bytes, step, traffic.
std::string plan_table(const Plan& plan, std::size_t memory_bytes);
// What a rank holds at its peak, and what it would hold under DeepSpeed and on the platform; largest first. The row has
// a run.
std::string ledgers_text(const PlanRow& row, std::size_t memory_bytes);
// A step's operations by module, and what the row makes of them. Empty for a model of one's own. The row has a run.
std::string flops_text(const PlanRow& row, const Scenario& scenario);
Json flops_json(const Scenario& scenario);
Json row_json(const PlanRow& row, std::size_t memory_bytes);

}  // namespace seeksim::harness
