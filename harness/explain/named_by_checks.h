// What red checks say of the first thing that went wrong, where values do not, or show its consequence alone.
#pragma once

#include "harness/explain/mistake.h"
#include "harness/input/json.h"
#include "harness/scenario/scenario.h"

namespace seeksim::harness {

// Sets the kind of the mistake, and the operation where a check names one or where none may be named.
void heed_checks(const Scenario& scenario, const Json& report, Names& names);

// The first operation that a check's words name, as describe(Op) writes them: false, there is none.
bool operation_in(const std::string& words, Names& names);

}  // namespace seeksim::harness
