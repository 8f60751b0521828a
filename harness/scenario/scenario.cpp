#include "harness/scenario/scenario.h"

#include <sstream>

namespace seeksim::harness {

std::vector<std::string> Expect::names() const {
  std::vector<std::string> all;
  std::istringstream words(argument);
  for (std::string word; words >> word;) all.push_back(word);
  return all;
}

std::vector<int> node_of(const sim::WorldPlan& world) {
  std::vector<int> nodes(std::size_t(world.ranks()));
  for (int rank = 0; rank < world.ranks(); ++rank) nodes[std::size_t(rank)] = rank / world.ranks_per_node;
  return nodes;
}

}  // namespace seeksim::harness
