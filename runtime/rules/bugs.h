// The names of all planted bugs, for the files that plant or look for one of them.
#pragma once

#include "runtime/rules/bug.h"

namespace seeksim::runtime {

enum class Bug : std::uint8_t {
  none,
#define SEEKSIM_BUG(name, does, caught) name,
#include "runtime/rules/bugs.inl"
#undef SEEKSIM_BUG
  count_
};

}  // namespace seeksim::runtime
