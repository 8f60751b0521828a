// "checks" and "expect" of a scenario.
#pragma once

#include "harness/input/keys.h"
#include "harness/scenario/scenario.h"

namespace seeksim::harness {

// A check with an argument that is no word: {"recoveries": 1}.
Shape check_shape();
// A check as a string, "name" or "name:argument". The pattern is for editors: read_checks() says what is wrong.
Shape check_text();
const Keys<Expect>& expect_keys();

// ranks: of the world, 0 when unknown.
void read_checks(const Reader& top, int ranks, Scenario& scenario);
// After the checks.
void read_expect(const Reader& top, Scenario& scenario);

}  // namespace seeksim::harness
