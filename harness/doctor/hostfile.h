// A DeepSpeed hostfile: "host slots=8", one a line.
#pragma once

#include <cstdint>
#include <string_view>

namespace seeksim::harness {

// All slots of the lines that DeepSpeed reads.
std::int64_t slots_of(std::string_view text);

}  // namespace seeksim::harness
