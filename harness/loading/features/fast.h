// "numerics": "fast": products and sums over ranks as vendors make them (kernels/fast.h), in two runs. The scenario's
// own runs freely, and no check compares its bits. The second is the same training by the contract, undisturbed. In it
// the vendor's result of each product and sum is compared with the contract's, from the same operands
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
