// CopyPlaces: on which members the copies of each member's shard are kept. A pure function of (members, their nodes,
// how many copies), so that all decide alike without asking. A copy is never on its owner's node while another node has
// a member without one, and the copies of one shard are on as many nodes as there are: what dies together shall not
// hold both.
#pragma once

#include <functional>
#include <utility>
#include <vector>

namespace seeksim::runtime {

class CopyPlaces {
 public:
  CopyPlaces() = default;  // no copies
  // members: launch ranks. copies: of each shard; at most one a member besides the owner.
  CopyPlaces(const std::vector<int>& members, const std::function<int(int rank)>& node_of, int copies);

  // Positions of the members that keep copies of the shard of the one at `owner`, the first to be asked first.
  std::vector<int> keepers_of(int owner) const;
  // Positions of the owners whose copies the member at `keeper` has, ascending.
  std::vector<int> kept_by(int keeper) const;
  // Copies that one member keeps at most.
  int kept_at_most() const;
  bool any() const { return copies_ > 0; }

 private:
  std::vector<std::vector<int>> nodes_;      // positions, by node
  std::vector<std::pair<int, int>> places_;  // of each position: its node in nodes_, its place there
  int copies_ = 0;
};

}  // namespace seeksim::runtime
