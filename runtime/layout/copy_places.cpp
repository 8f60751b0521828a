// Where nodes have equally many members, each member keeps equally many copies: going to the same place of another node
// is a bijection.
#include "runtime/layout/copy_places.h"

#include <algorithm>
#include <map>

namespace seeksim::runtime {

CopyPlaces::CopyPlaces(const std::vector<int>& members, const std::function<int(int rank)>& node_of, int copies)
    : copies_(std::clamp(copies, 0, std::max(int(members.size()) - 1, 0))) {
  std::map<int, int> number;  // of a node, in the order in which members name them
  for (std::size_t position = 0; position < members.size(); ++position) {
    const int node = number.try_emplace(node_of(members[position]), int(number.size())).first->second;
    if (node == int(nodes_.size())) nodes_.emplace_back();
    places_.emplace_back(node, int(nodes_[std::size_t(node)].size()));
    nodes_[std::size_t(node)].push_back(int(position));
  }
}

// Node by node from half a world away on; when each other node has one, each gets another; at last the own node.
std::vector<int> CopyPlaces::keepers_of(int owner) const {
  std::vector<int> keepers;
  const auto [home, place] = places_[std::size_t(owner)];
  const int nodes = int(nodes_.size());
  for (bool room = true; room && int(keepers.size()) < copies_;) {
    room = false;
    for (int i = 0; i < nodes && int(keepers.size()) < copies_; ++i) {
      const int node = (home + nodes / 2 + i) % nodes;
      const std::vector<int>& there = nodes_[std::size_t(node)];
      if (node == home) continue;
      const auto is_free = [&](int position) {
        return std::find(keepers.begin(), keepers.end(), position) == keepers.end();
      };
      for (std::size_t k = 0; k < there.size(); ++k) {
        const int position = there[(std::size_t(place) + k) % there.size()];
        if (!is_free(position)) continue;
        keepers.push_back(position);
        room = true;
        break;
      }
    }
  }
  const std::vector<int>& here = nodes_[std::size_t(home)];
  const int n = int(here.size());
  for (int i = 0; i < n && int(keepers.size()) < copies_; ++i) {
    const int other = (place + std::max(1, n / 2) + i) % n;
    if (other != place) keepers.push_back(here[std::size_t(other)]);
  }
  return keepers;
}

std::vector<int> CopyPlaces::kept_by(int keeper) const {
  std::vector<int> owners;
  for (int owner = 0; owner < int(places_.size()) && any(); ++owner) {
    const std::vector<int> keepers = keepers_of(owner);
    if (std::find(keepers.begin(), keepers.end(), keeper) != keepers.end()) owners.push_back(owner);
  }
  return owners;
}

int CopyPlaces::kept_at_most() const {
  std::vector<int> kept(places_.size());
  for (int owner = 0; owner < int(places_.size()); ++owner) {
    for (const int keeper : keepers_of(owner)) ++kept[std::size_t(keeper)];
  }
  return kept.empty() ? 0 : *std::max_element(kept.begin(), kept.end());
}

}  // namespace seeksim::runtime
