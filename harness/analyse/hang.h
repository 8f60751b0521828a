// What the dumps of a job tell about its hang. Numbers are compared inside a group only; no step and no second is made
// up; a rank is accused only where its own dump speaks against it.
#pragma once

#include <vector>

#include "harness/analyse/dump.h"
#include "harness/analyse/story.h"

namespace seeksim::harness {

// Throws BadInput where two dumps are of one rank, or where there is none.
Story judge_dumps(std::vector<Dump> dumps);

}  // namespace seeksim::harness
