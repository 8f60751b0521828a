#include "runtime/layout/ring_order.h"

#include <algorithm>
#include <map>
#include <utility>

namespace seeksim::runtime {
namespace {

// Nodes of a tree over `count` leaves, of which some never come.
class Nodes {
 public:
  Nodes(std::span<const int> leaves, int count) : leaves_(leaves) {
    while ((1 << levels_) < count) ++levels_;
  }

  int take() {
    int slot = 0;
    while (std::find(used_.begin(), used_.end(), slot) != used_.end()) ++slot;
    used_.push_back(slot);
    slots_ = std::max(slots_, slot + 1);
    return slot;
  }
  TreeOrder::Arrival come(int leaf, int into) {
    TreeOrder::Arrival arrival{into, {}};
    int level = 0, index = leaf, slot = arrival.slot;
    for (; level < levels_; ++level, index /= 2) {
      const int sibling = index ^ 1;
      if (!exists(level, sibling)) continue;  // it passes through
      const auto there = here_.find({level, sibling});
      if (there == here_.end()) break;
      const bool is_older = sibling < index;
      const TreeOrder::Join join{is_older ? there->second : slot, is_older ? slot : there->second};
      arrival.joins.push_back(join);
      here_.erase(there);
      slot = join.older;
      std::erase(used_, join.newer);
    }
    here_[{level, index}] = slot;
    return arrival;
  }
  int slots() const { return slots_; }
  int root() const {
    SEEKSIM_CHECK(here_.size() == 1 && here_.begin()->first.first == levels_, "%zu nodes are left of a tree",
                  here_.size());
    return here_.begin()->second;
  }

 private:
  bool exists(int level, int index) const {
    return std::any_of(leaves_.begin(), leaves_.end(), [&](int leaf) { return leaf >> level == index; });
  }

  std::span<const int> leaves_;
  int levels_ = 0, slots_ = 0;
  std::map<std::pair<int, int>, int> here_;  // (level, index): slot
  std::vector<int> used_;
};

int chunk_number(const ContextCut& cut, int rank, int i, bool by_rank) {
  return by_rank ? rank * cut.chunks_of_rank() + i : cut.chunk(rank, i);
}

}  // namespace

TreeOrder tree_order(std::span<const std::vector<int>> batches, int count) {
  TreeOrder order;
  std::vector<int> leaves;
  for (const std::vector<int>& batch : batches) leaves.insert(leaves.end(), batch.begin(), batch.end());
  if (leaves.empty()) return order;
  Nodes nodes(leaves, count);
  for (const std::vector<int>& batch : batches) {
    std::vector<int> slots;
    for (std::size_t i = 0; i < batch.size(); ++i) slots.push_back(nodes.take());
    for (std::size_t i = 0; i < batch.size(); ++i) order.arrivals.push_back(nodes.come(batch[i], slots[i]));
  }
  order.slots = nodes.slots();
  const int root = nodes.root();
  const auto rename = [root](int& slot) { slot = slot == root ? 0 : slot == 0 ? root : slot; };
  for (TreeOrder::Arrival& arrival : order.arrivals) {
    rename(arrival.slot);
    for (TreeOrder::Join& join : arrival.joins) rename(join.older), rename(join.newer);
  }
  return order;
}

std::vector<RingPair> ring_pairs(const ContextCut& cut, int queries_of, int keys_of, bool by_rank) {
  std::vector<RingPair> pairs;
  for (int q = 0; q < cut.chunks_of_rank(); ++q) {
    for (int k = 0; k < cut.chunks_of_rank(); ++k) {
      const int query = chunk_number(cut, queries_of, q, by_rank), key = chunk_number(cut, keys_of, k, by_rank);
      if (key <= query) pairs.push_back({q, k, key < query});
    }
  }
  return pairs;
}

RingOrder::RingOrder(const ContextCut& cut, int rank, const RingMistakes& wrong) {
  const std::size_t own = std::size_t(cut.chunks_of_rank());
  std::vector<std::vector<std::vector<int>>> seen(own), seeing(own);  // numbers of chunks of keys; of queries
  const int count = cut.ranks - (wrong.last_hop_out ? 1 : 0);
  for (int h = 0; h < count; ++h) {
    Hop hop{(rank + cut.ranks - h) % cut.ranks, (rank + h) % cut.ranks, {}, {}};
    hop.pairs = ring_pairs(cut, rank, hop.owner, wrong.by_rank);
    hop.from_asker = ring_pairs(cut, hop.asker, rank, wrong.by_rank);
    for (const RingPair& pair : hop.pairs)
      seen[std::size_t(pair.query)].push_back({chunk_number(cut, hop.owner, pair.key, wrong.by_rank)});
    for (auto& batches : seeing) batches.emplace_back();
    const bool come = !wrong.gradients_stay || h + 1 < count;
    for (std::size_t i = 0; come && i < hop.from_asker.size(); ++i) {
      const RingPair& pair = hop.from_asker[i];
      seeing[std::size_t(pair.key)].back().push_back(chunk_number(cut, hop.asker, pair.query, wrong.by_rank));
    }
    hops.push_back(std::move(hop));
  }
  for (std::size_t i = 0; i < own; ++i) {
    queries.push_back(tree_order(seen[i], cut.chunks()));
    keys.push_back(tree_order(seeing[i], cut.chunks()));
  }
}

int RingOrder::most_slots(const std::vector<TreeOrder>& orders) {
  int most = 0;
  for (const TreeOrder& order : orders) most = std::max(most, order.slots);
  return most;
}

int RingOrder::pairs_at_most() const {
  std::size_t most = 0;
  for (std::size_t h = 1; h < hops.size(); ++h) most = std::max(most, hops[h].pairs.size());
  return int(most);
}

}  // namespace seeksim::runtime
