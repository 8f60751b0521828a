// Python's pickles as plain values. Nothing is executed: what would make an object, call a function or name a class is
// refused by its name. Memory, depth and memo are bounded, whatever the file says.
#pragma once

#include <cstddef>
#include <string_view>

#include <nlohmann/json.hpp>

namespace seeksim::harness {

// Values of a dump: members in the order of their names, found in logarithmic time.
using Tree = nlohmann::json;

struct PickleBounds {
  std::size_t values_max = 4'000'000;                     // of the stack, of lists and dicts, and of what comes out
  std::size_t text_max = std::size_t(256) * 1024 * 1024;  // bytes of all strings of what comes out
  int depth_max = 32;                                     // levels of dicts, lists and tuples
};

// Whether bytes begin as pickles of protocols 2 to 5 do.
bool looks_like_pickle(std::string_view bytes);

// The value of a pickle of protocols 2 to 5 made of dict, list, tuple, str, bytes, int, float, None and bool; tuples
// become lists, bytes become text, keys that are numbers become text, integers beyond 64 bits become floats. Throws
// std::runtime_error("... at byte 7") at whatever else it finds.
Tree read_pickle(std::string_view bytes, const PickleBounds& bounds = {});

}  // namespace seeksim::harness
