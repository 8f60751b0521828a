// "numerics": "shapes": a run without values, in which only sizes, order and time exist. A scenario that asks for
// values is refused here, with the key's name, so that no check is green without having looked.
#pragma once

#include <string>
#include <vector>

#include "harness/input/reader.h"
#include "harness/scenario/scenario.h"

namespace seeksim::harness {

// Reads the key, and refuses what cannot be judged without values. Last of all: it looks at what the others read.
void read_numerics(const Reader& top, Scenario& scenario);

// The checks that look at no value, and so can judge a run of shapes.
std::vector<std::string> checks_of_shapes();

}  // namespace seeksim::harness
