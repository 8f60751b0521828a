// A ds_config.json where a scenario is expected: what its user has before anything else.
#pragma once

#include <string>

#include "harness/input/json_text.h"

namespace seeksim::harness {

// Keys of DeepSpeed at the top level, and none of a scenario.
bool is_deepspeed_config(const Json& json);

// A small training around it, as the text of a scenario: a GPT-2 on as many simulated ranks as the batch is for.
std::string scenario_around(const Json& config, const std::string& file);

// What a user is told of it. scenario: of the above.
std::string note_of_config(const std::string& scenario, const std::string& file);

}  // namespace seeksim::harness
