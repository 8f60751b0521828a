// A flight recorder as PyTorch's own tool reads it: torchfrtrace knows PyTorch's operations only, and takes no file but
// pickles.
#pragma once

#include "harness/input/json.h"
#include "runtime/detect/analyser.h"

namespace seeksim::harness {

// The dump without what PyTorch has no key for, each operation under the name of PyTorch's that moves data likewise:
// whatever gives ranks unequal parts is an all_to_all. `json`: as to_json() of flight_recorder.h has made it.
Json torch_form(const runtime::FlightDump& dump, Json json);

}  // namespace seeksim::harness
