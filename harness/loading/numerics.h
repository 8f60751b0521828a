// "numerics": "shapes": a run without values, in which only sizes, order and time exist. What a scenario asks of values
// is refused by name here, so that nothing is green that nobody looked at.
#pragma once

#include <string>
#include <vector>

#include "harness/input/reader.h"
#include "harness/scenario/scenario.h"

namespace seeksim::harness {

// Reads the key, and refuses what cannot be judged without values. Last of all: it looks at what the others read.
void read_numerics(const Reader& top, Scenario& scenario);

// Checks that look at values, and checks that do not. Every check is in one of the two (a test counts them).
const std::vector<std::string>& checks_of_values();
const std::vector<std::string>& checks_of_shapes();

}  // namespace seeksim::harness
