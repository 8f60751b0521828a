// "numerics": "fast": products and sums over ranks as vendors make them (kernels/fast.h), in two runs. The scenario's
// own runs freely, and its bits are nobody's. Beside it the same training is done by the contract, undisturbed, and of
// each product and sum the vendor's result from the same operands is held against the contract's
// (runtime/numeric_audit.h): that is what within_bounds judges. The two losses stand side by side in the report, and
// judge nothing.
#pragma once

#include <string>
#include <vector>

#include "harness/finding.h"
#include "harness/json.h"
#include "harness/reader.h"
#include "harness/scenario.h"
#include "kernels/fast_way.h"
#include "runtime/numeric_audit.h"

namespace seeksim::harness {

struct Evidence;
struct Golden;
struct RunRecord;

bool is_fast(const Scenario& scenario);
// What a planted bug makes of it included.
kernels::FastWay fast_way(const runtime::TrainPlan& plan);

// Reads what belongs to the key, and refuses what needs exact bits. numerics: the word, already one of those known.
void read_fast(const Reader& top, const std::string& numerics, Scenario& scenario);

// The run beside it: the same world, undisturbed, by the contract.
Scenario teacher(const Scenario& scenario);

struct FastComparison {
  runtime::AuditReport audit;
  std::vector<float> loss;         // the contract's, by step
  std::uint64_t through_host = 0;  // products that no library of the device computed
  std::string not_canonical;       // the run beside it has other bits than the golden: its operands prove nothing
};
// golden: of the scenario.
FastComparison compare_fast(const RunRecord& teacher, const runtime::AuditReport& audit, std::uint64_t through_host,
                            const Golden& golden);

Finding within_bounds(const Evidence& evidence, const std::string& argument);
std::string fast_text(const Evidence& evidence);
Json fast_json(const Evidence& evidence);

}  // namespace seeksim::harness
