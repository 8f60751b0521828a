// The wait-for graph of a world: which rank waits for which, and in what operation. Text, one line an edge.
#pragma once

#include <string>

namespace seeksim::sim {

struct Core;

std::string wait_for_graph(Core& core);

}  // namespace seeksim::sim
