// Names: what went wrong first in a red run. The run is made again, with every value held against the golden's
// (value_judge.h); what that cannot tell, races, calls that do not fit, memory, is told by the checks that are red.
#pragma once

#include <string>

#include "harness/explain/mistake.h"
#include "harness/input/json.h"
#include "harness/scenario/scenario.h"

namespace seeksim::harness {

// Finds them for a red run, given its report. Throws what running a scenario throws.
Names names_of(const Scenario& scenario, const Json& report, double wall_limit_s);

// Five lines at most; empty where nothing can be named.
std::string names_text(const Names& names);
Json names_json(const Names& names);

}  // namespace seeksim::harness
