// Quirks of a scenario: their names, read and checked against the rest of it. runtime/rules/quirks.h says what quirks
// are.
#pragma once

#include <string>
#include <vector>

#include "harness/input/reader.h"
#include "harness/scenario/scenario.h"

namespace seeksim::harness {

// Fills definition.quirks, before all that a quirk may give a default to.
void read_quirks(const Reader& top, Scenario& scenario);
// When all else is read: refuses quirks that exclude each other, that cannot do anything in this scenario, and that
// this version does not wire; and goldens where none has the run's bits.
void check_quirks(const Reader& top, const Scenario& scenario);

}  // namespace seeksim::harness
