// The JSON value of the harness: keys keep their order, so that a scenario written back reads like the one that came
// in.
#pragma once

#include <nlohmann/json_fwd.hpp>

namespace seeksim::harness {

using Json = nlohmann::ordered_json;

}  // namespace seeksim::harness
