// What a check came to. `looked` says whether there was anything to look at; if not, the check is red.
#pragma once

#include <string>
#include <utility>

namespace seeksim::harness {

struct Finding {
  bool ok = false;
  bool looked = true;
  std::string detail;
};
inline Finding good(std::string detail) { return {true, true, std::move(detail)}; }
inline Finding bad(std::string detail) { return {false, true, std::move(detail)}; }
inline Finding blind(std::string detail) { return {false, false, std::move(detail)}; }

}  // namespace seeksim::harness
