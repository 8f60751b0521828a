// RingOrder: what a rank of a context group attends to, hop by hop, where blocks of keys and values go around; and into
// which slots the nodes go that it has of each sum, so that they are joined by the tree (docs/numerics.md#f3) whatever
// order they come in.
//
// In hop h a rank has the block of the rank h places before it: h = 0 is its own. Chunks of a sample are the leaves: a
// chunk of queries sees its own keys and those of all chunks before.
#pragma once

#include <span>
#include <vector>

#include "runtime/layout/context_cut.h"

namespace seeksim::runtime {

// A sum over leaves that come one at a time.
struct TreeOrder {
  struct Join {
    int older = 0, newer = 0;  // slots; the sum is in older's, and newer's is free
  };
  struct Arrival {
    int slot = 0;  // where it goes
    std::vector<Join> joins;
  };
  int slots = 0;
  std::vector<Arrival> arrivals;  // in the end the root is in slot 0
};

// Numbers of leaves, below `count`, in the order in which they come. Those of a batch come before any of them is
// joined. Leaves that never come are no operands.
TreeOrder tree_order(std::span<const std::vector<int>> batches, int count);

// Planted mistakes.
struct RingMistakes {
  bool by_rank = false;         // chunks are numbered by the ranks that have them
  bool last_hop_out = false;    // there is one hop too few
  bool gradients_stay = false;  // those of the last hop do not go home
};

// Queries of one rank's chunk and keys of another's, by their places among the chunks of these ranks.
struct RingPair {
  int query = 0;
  int key = 0;
  bool before = false;  // the keys stand before the queries; else they are one chunk
};

// All pairs of the queries of one rank and the keys of another. by_rank: see RingMistakes.
std::vector<RingPair> ring_pairs(const ContextCut& cut, int queries_of, int keys_of, bool by_rank);

struct RingOrder {
  RingOrder(const ContextCut& cut, int rank, const RingMistakes& wrong = {});

  struct Hop {
    int owner = 0;                     // of the block that is here
    int asker = 0;                     // the rank that has ours
    std::vector<RingPair> pairs;       // our queries, its keys
    std::vector<RingPair> from_asker;  // its queries, our keys
  };
  std::vector<Hop> hops;  // as many as ranks; the first needs no message
  // Of each own chunk: of its queries over chunks of keys; of its keys over chunks of queries, those of a hop together.
  // The nodes come hop by hop, in the order of the pairs.
  std::vector<TreeOrder> queries, keys;

  int query_slots() const { return most_slots(queries); }
  int key_slots() const { return most_slots(keys); }
  int pairs_at_most() const;  // of a hop but the first

 private:
  static int most_slots(const std::vector<TreeOrder>& orders);
};

}  // namespace seeksim::runtime
