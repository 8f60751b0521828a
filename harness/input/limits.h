// How much of a given text a message repeats.
#pragma once

#include <cstddef>

namespace seeksim::harness {

// At most this many problems are reported: more of them mean the wrong file, and nobody reads on.
inline constexpr std::size_t kProblemsTold = 50;
inline constexpr std::size_t kPlaceMax = 400;  // bytes of a place or a path
inline constexpr std::size_t kTextMax = 4000;  // of what is wrong, and of what to do

}  // namespace seeksim::harness
