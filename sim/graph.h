// The wait-for graph of a world: who waits for whom, and in what. Text, one line an edge.
#pragma once

#include <string>

namespace seeksim::sim {

struct Core;

std::string wait_for_graph(Core& core);

}  // namespace seeksim::sim
