// What is sent in place of gradients. Compressed ones: whether anything was lost between what ranks sent and what they
// kept, and how many bytes and collectives they take. Weights of workers that train apart: whether these meet when they
// should, and the same. Gradients that come late: whether each is applied once, in time. compression_conserves,
// workers_meet and staleness_bounded are rows of check_table.cpp.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "harness/oracles/evidence.h"
#include "harness/oracles/formulas.h"

namespace seeksim::harness {

Finding compression_conserves(const Evidence& evidence, const std::string& argument);
// Whether each gradient of a worker entered one step, in its order, and none later than the bound allows.
Finding staleness_bounded(const Evidence& evidence, const std::string& argument);
// Whether workers that train apart have equal weights after each outer step, and only there.
Finding workers_meet(const Evidence& evidence, const std::string& argument);
// Whether there are workers that moved or met: in a run of nothing but skipped steps there are none.
bool workers_to_judge(const Evidence& evidence);

// As traffic_budget() and calls_budget(), of a run with compression. The bytes of gathers may be told apart or, where
// plain steps come first, as those of all_reduce.
std::vector<BudgetLine> compressed_traffic(const Evidence& evidence);
std::vector<BudgetLine> compressed_calls(const Evidence& evidence);
// The same of a run whose workers train apart.
std::vector<BudgetLine> workers_traffic(const Scenario& scenario, std::int64_t steps, std::int64_t applied);
std::vector<BudgetLine> workers_calls(const Scenario& scenario, std::int64_t steps);

}  // namespace seeksim::harness
