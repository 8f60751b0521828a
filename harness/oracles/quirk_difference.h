// quirk_differs: what difference a scenario's quirks made.
#pragma once

#include <string>

#include "harness/oracles/evidence.h"

namespace seeksim::harness {

// How loss, norm and weights differ from the same run without the quirks. Red where nothing does. step: in which the
// first number shall differ; empty: any.
Finding quirk_differs(const Evidence& evidence, const std::string& step);

}  // namespace seeksim::harness
