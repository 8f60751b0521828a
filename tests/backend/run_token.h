// The secret by which the ranks of a run know each other, where a test needs one that is well formed.
#pragma once

namespace seeksim::runtime {

inline constexpr const char* kToken = "0123456789abcdef0123456789abcdef";

}  // namespace seeksim::runtime
