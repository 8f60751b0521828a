// A property of what a parser took. It ends the process, so that no test can overlook it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <utility>
#include <vector>

namespace seeksim::fuzz {

inline void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "a parser took what it should not: %s\n", what);
  std::abort();
}

// Levels of objects and lists, counted without recursion: what is too deep for a copy is not too deep for this.
template <class Json>
std::size_t levels_of(const Json& whole) {
  std::vector<std::pair<const Json*, std::size_t>> open{{&whole, 1}};
  std::size_t levels = 0;
  while (!open.empty()) {
    const auto [value, level] = open.back();
    open.pop_back();
    if (!value->is_structured()) continue;
    levels = std::max(levels, level);
    for (const Json& inner : *value) open.emplace_back(&inner, level + 1);
  }
  return levels;
}

}  // namespace seeksim::fuzz
