// within_bounds: each product and each sum over ranks of fast arithmetic, compared with the contract's from the same
// operands (runtime/launch/numeric_audit.h). The report shows both losses; no check judges them.
#pragma once

#include <string>

#include "harness/input/json.h"
#include "harness/oracles/evidence.h"

namespace seeksim::harness {

// teacher: a run that was audited. golden: of the scenario.
FastComparison compare_fast(const RunRecord& teacher, const std::string& backend, const Golden& golden);

Finding within_bounds(const Evidence& evidence, const std::string& argument);
std::string fast_text(const Evidence& evidence);
Json fast_json(const Evidence& evidence);

}  // namespace seeksim::harness
