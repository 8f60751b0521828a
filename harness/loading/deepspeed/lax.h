// Values as pydantic reads them for DeepSpeed's configuration classes: "8" and 8.0 for an integer, "true" and 1 for a
// boolean, any whole number in a list of choices that is written in quotes.
#pragma once

#include <string>

#include "harness/input/json.h"

namespace seeksim::harness {

// Gives `value` the types that the schema names, member by member, where pydantic does so. What it does not take either
// is left alone: the schema says what is wrong with it.
void read_laxly(const Json& schema, Json& value);

}  // namespace seeksim::harness
