// A property of what a parser took. It ends the process, so that no test can overlook it.
#pragma once

#include <cstdio>
#include <cstdlib>

namespace seeksim::fuzz {

inline void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "a parser took what it should not: %s\n", what);
  std::abort();
}

}  // namespace seeksim::fuzz
