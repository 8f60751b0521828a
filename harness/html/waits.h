// Who waits for whom at the moment when nothing moved, as a picture and as a table.
#pragma once

#include <string>
#include <vector>

namespace seeksim::harness::html {

// One line of a wait-for graph: "ranks 0-4: communication queue: all_reduce ... waits for rank 5 (to join)".
struct Wait {
  std::string who;   // "ranks 0-4"
  std::string what;  // "communication queue: all_reduce ..."
  std::string whom;  // "rank 5 (to join)"
};
Wait wait_of(const std::string& line);

// lines: as report/story.h groups them. Empty where there are none.
std::string waits_figure(const std::vector<std::string>& lines);

}  // namespace seeksim::harness::html
