// How much of what somebody gave is told back.
#pragma once

#include <cstddef>

namespace seeksim::harness {

// So many problems; whoever has more has given the wrong file, and no person reads on.
inline constexpr std::size_t kProblemsTold = 50;
inline constexpr std::size_t kPlaceMax = 400;  // bytes of a place or a path
inline constexpr std::size_t kTextMax = 4000;  // of what is wrong, and of what to do

}  // namespace seeksim::harness
