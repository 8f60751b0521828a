// "numerics": "fast": products and sums over ranks as vendors make them (kernels/fast.h), in two runs. The scenario's
// own runs freely, and its bits are nobody's. Beside it the same training is done by the contract, undisturbed, and of
// each product and sum the vendor's result from the same operands is held against the contract's
// (runtime/launch/numeric_audit.h): that is what within_bounds judges (oracles/fast_bounds.h).
#pragma once

#include <string>

#include "harness/input/reader.h"
#include "harness/scenario/scenario.h"
#include "kernels/fast_way.h"

namespace seeksim::harness {

// Reads what belongs to the key, and refuses what needs exact bits. numerics: the word, already one of those known.
void read_fast(const Reader& top, const std::string& numerics, Scenario& scenario);

}  // namespace seeksim::harness
