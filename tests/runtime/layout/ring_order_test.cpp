// What a rank attends to in each hop, and the order in which nodes are joined: the tree's, whatever comes first.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <numeric>
#include <random>
#include <string>

#include "runtime/layout/ring_order.h"

namespace seeksim::runtime {
namespace {

ContextCut ring_cut(int ranks, bool zigzag) { return {256, ranks, zigzag}; }

// "(0 1)": a node is written as its operands, the older one first.
std::string tree_text(const std::vector<int>& leaves, int begin, int width) {
  if (width == 1) return std::count(leaves.begin(), leaves.end(), begin) > 0 ? std::to_string(begin) : "";
  const std::string left = tree_text(leaves, begin, width / 2), right = tree_text(leaves, begin + width / 2, width / 2);
  return left.empty() || right.empty() ? left + right : "(" + left + " " + right + ")";
}

// The same by the order's slots; "?" where a slot is used that holds nothing, or is overwritten.
std::string text_by_slots(const TreeOrder& order, const std::vector<std::vector<int>>& batches) {
  std::vector<std::string> slots(std::size_t(order.slots));
  std::size_t at = 0;
  for (const std::vector<int>& batch : batches) {
    for (std::size_t i = 0; i < batch.size(); ++i) {
      std::string& slot = slots[std::size_t(order.arrivals[at + i].slot)];
      slot = slot.empty() ? std::to_string(batch[i]) : "?";
    }
    for (std::size_t i = 0; i < batch.size(); ++i, ++at) {
      for (const TreeOrder::Join& join : order.arrivals[at].joins) {
        std::string &older = slots[std::size_t(join.older)], &newer = slots[std::size_t(join.newer)];
        older = older.empty() || newer.empty() ? "?" : "(" + older + " " + newer + ")";
        newer.clear();
      }
    }
  }
  for (std::size_t i = 1; i < slots.size(); ++i)
    if (!slots[i].empty()) return "more than a root";
  return slots.empty() ? "" : slots[0];
}

TEST(RingOrder, NodesAreJoinedByTheTreeInWhateverOrderTheyCome) {
  std::mt19937 rng(3);
  for (int count = 1; count <= 9; ++count) {
    for (int subset = 1; subset < 1 << count; subset += 1 + count / 7 * 5) {
      std::vector<int> leaves;
      for (int leaf = 0; leaf < count; ++leaf)
        if ((subset >> leaf & 1) != 0) leaves.push_back(leaf);
      std::shuffle(leaves.begin(), leaves.end(), rng);
      std::vector<std::vector<int>> batches(1);
      for (const int leaf : leaves) {
        if (!batches.back().empty() && rng() % 2 == 0) batches.emplace_back();
        batches.back().push_back(leaf);
      }
      ASSERT_EQ(text_by_slots(tree_order(batches, count), batches),
                tree_text(leaves, 0, int(std::bit_ceil(unsigned(count)))))
          << count << " " << subset;
    }
  }
}

TEST(RingOrder, EachQueryMeetsEachKeyThatItSeesOnce) {
  for (const int ranks : {2, 4, 8}) {
    for (const bool zigzag : {false, true}) {
      if (zigzag && ranks == 8) continue;
      const ContextCut cut = ring_cut(ranks, zigzag);
      std::vector<std::vector<int>> met(std::size_t(cut.chunks()), std::vector<int>(std::size_t(cut.chunks())));
      for (int rank = 0; rank < ranks; ++rank) {
        const RingOrder order(cut, rank);
        ASSERT_EQ(int(order.hops.size()), ranks);
        EXPECT_EQ(order.hops[0].owner, rank);
        for (const RingOrder::Hop& hop : order.hops) {
          for (const RingPair& pair : hop.pairs) {
            const int q = cut.chunk(rank, pair.query), k = cut.chunk(hop.owner, pair.key);
            EXPECT_EQ(pair.before, k < q);
            ++met[std::size_t(q)][std::size_t(k)];
          }
        }
      }
      for (int q = 0; q < cut.chunks(); ++q)
        for (int k = 0; k < cut.chunks(); ++k) EXPECT_EQ(met[std::size_t(q)][std::size_t(k)], k <= q ? 1 : 0);
    }
  }
}

// What one rank sends is what the other waits for, and the block that is here is the one that the rank before had.
TEST(RingOrder, RanksAgreeAboutEachHop) {
  for (const bool zigzag : {false, true}) {
    const ContextCut cut = ring_cut(4, zigzag);
    for (int rank = 0; rank < 4; ++rank) {
      const RingOrder here(cut, rank);
      for (std::size_t h = 0; h < 4; ++h) {
        const RingOrder::Hop& hop = here.hops[h];
        const RingOrder of_asker(cut, hop.asker), before(cut, (rank + 3) % 4);
        EXPECT_EQ(of_asker.hops[h].owner, rank);
        const std::vector<RingPair>& theirs = of_asker.hops[h].pairs;
        ASSERT_EQ(hop.from_asker.size(), theirs.size());
        for (std::size_t i = 0; i < theirs.size(); ++i)
          EXPECT_EQ(std::pair(hop.from_asker[i].query, hop.from_asker[i].key),
                    std::pair(theirs[i].query, theirs[i].key));
        if (h > 0) {
          EXPECT_EQ(before.hops[h - 1].owner, hop.owner);
        }
      }
    }
  }
}

// Under a causal mask ranks of a zig-zag cut have the same work in each hop; in one stretch, the last rank has all.
TEST(RingOrder, ZigzagBalancesTheWork) {
  for (const int ranks : {2, 4}) {
    for (int rank = 0; rank < ranks; ++rank) {
      const RingOrder zigzag(ring_cut(ranks, true), rank), stretch(ring_cut(ranks, false), rank);
      for (std::size_t h = 0; h < std::size_t(ranks); ++h) {
        EXPECT_EQ(zigzag.hops[h].pairs.size(), h == 0 ? 3u : 2u);
        EXPECT_EQ(stretch.hops[h].pairs.size(), int(h) <= rank ? 1u : 0u);
      }
    }
  }
}

// Few nodes wait at one time: log2 of the chunks, and what comes at once.
TEST(RingOrder, FewNodesWait) {
  for (const bool zigzag : {false, true}) {
    for (const int ranks : {2, 4}) {
      for (int rank = 0; rank < ranks; ++rank) {
        const RingOrder order(ring_cut(ranks, zigzag), rank);
        const int most = std::bit_width(unsigned(order.queries.size()) * unsigned(ranks)) + 1;
        EXPECT_LE(order.query_slots(), most) << ranks << zigzag << rank;
        EXPECT_LE(order.key_slots(), most + 1) << ranks << zigzag << rank;
        EXPECT_EQ(order.pairs_at_most(), zigzag ? 2 : std::min(rank, 1));
      }
    }
  }
}

}  // namespace
}  // namespace seeksim::runtime
