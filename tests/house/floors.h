// The rooms of the wings and the floors on which they stand: the table that includes are checked against.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/house/source_rules.h"

namespace seeksim::house {

// One wing of the house: a top-level folder with rooms. Its floors, bottom to top; a room includes rooms of lower
// floors only, and rooms of one floor do not include each other.
struct Wing {
  std::string folder;  // "harness", with no slash at its end
  std::vector<std::vector<std::string>> floors;
  std::size_t units_most = 0;  // in one room; a header and its source are one unit
  bool one_engine = false;     // its units may include each other in a circle
};

const std::vector<Wing>& wings();

// The room of a file: "harness/loading/deepspeed", "harness/main.cpp", "sim". Empty for what is in no wing.
std::string room_of(std::string_view path);

// Includes that point up or sideways, and files that stand in no room of the table.
std::vector<Violation> check_floors(std::string_view path, std::string_view text);

// Rooms with more units than their wing allows; `paths` are all sources of the tree.
std::vector<Violation> check_room_sizes(const std::vector<std::string>& paths);

// Circles of includes between units of one room, each reported once; files are (path, text). Rooms whose units are one
// vocabulary or one engine cut into files (kernels, sim, faults, runtime/seams and two more) may have them.
std::vector<Violation> check_circles(const std::vector<std::pair<std::string, std::string>>& files);

}  // namespace seeksim::house
