// The text of a ds_config.json. DeepSpeed reads it with hjson, which takes more than JSON: of that, comments (#, // and
// /* */) and a comma before a closing bracket, which people write.
#pragma once

#include <string>
#include <string_view>

#include "harness/input/json_text.h"

namespace seeksim::harness {

// As parse_json, with the lines of the text as it is.
JsonText parse_ds_config(std::string_view text, const std::string& file);

}  // namespace seeksim::harness
