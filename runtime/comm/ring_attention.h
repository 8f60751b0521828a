// RingAttention: attention among the ranks of a context group by blocks of keys and values that go around (Liu et al.
// 2023). A rank keeps the queries of its own tokens, of all heads. Hop by hop the block that is here goes on to the
// next rank and the one before's comes, while the rank attends to the block that is here. What it gives is a node of
// each row's sum over keys, joined with the others by the tree over chunks, so that the bits are those of one rank.
//
// Backward, blocks go around once more. A node of the gradient of another rank's keys goes straight home, in fp32; the
// owner adds it by the tree over chunks of queries.
//
// Two places for blocks and two for gradients on their way: one is in use while the other is sent or filled.
#pragma once

#include <span>
#include <vector>

#include "kernels/fused_attention.h"
#include "runtime/comm/communicator.h"
#include "runtime/comm/edge.h"
#include "runtime/layout/ring_order.h"

namespace seeksim::runtime {

struct RingShape {
  Index samples_max = 0;  // of a micro-batch
  ContextCut cut;
  Index heads = 0, head_dim = 0, group = 1;  // of the model
  ElementType type = ElementType::f32;       // of activations

  Index key_columns() const { return heads / group * 2 * head_dim; }  // of a row of a block
};

class RingAttention {
 public:
  // Allocates places and nodes, once.
  RingAttention(Device& device, const RingShape& shape, int me, const PlantedBug& bug);

  // Where messages go: the group's communicator, and a queue for them.
  struct Link {
    Communicator& comm;
    Queue& queue;
  };
  // Rows of own tokens: qkv (R, Q), out (R, H*D), stats (R*H, 2) by chunk, sample, head, token.
  template <class S>
  void forward(Link link, Launcher& launch, Index samples, const kernels::Dropout& drop, MatView<const S> qkv,
               MatView<float> stats, MatView<S> out);
  template <class S>
  void backward(Link link, Launcher& launch, Index samples, const kernels::Dropout& drop, MatView<const S> dout,
                MatView<const S> qkv, MatView<const S> out, MatView<const float> stats, MatView<S> dqkv);

  const RingOrder& order() const { return order_; }

 private:
  // What all steps of a pass have in common.
  struct Pass {
    Link link;
    Launcher& launch;
    Index samples;
    kernels::Dropout drop;
  };
  // AttentionShape and FusedPlace in fewer bytes, since a launch holds few beside seven views.
  struct Part {
    std::int32_t samples, tokens, heads, head_dim, group;
    std::int32_t all_tokens, query, key;
    bool before;

    kernels::AttentionShape shape() const { return {samples, tokens, heads, head_dim, 0, group}; }
    kernels::FusedPlace place() const { return {all_tokens, query, key, before}; }
  };
  // How many nodes of each own chunk's sums have come.
  struct Counts {
    std::vector<int> queries, keys;
  };
  Counts none() const { return {std::vector<int>(chunks()), std::vector<int>(chunks())}; }
  std::size_t chunks() const { return std::size_t(shape_.cut.chunks_of_rank()); }
  Index rows(Index samples) const { return samples * shape_.cut.chunk_size(); }  // of a chunk
  bool is_last(int hop) const { return hop + 1 == int(order_.hops.size()); }
  kernels::AttentionShape attention(Index samples) const;
  Part part(Index samples, const RingPair& pair, int owner) const;
  const TreeOrder::Arrival& next(const std::vector<TreeOrder>& orders, std::vector<int>& counts, int chunk) const {
    return orders[std::size_t(chunk)].arrivals[std::size_t(counts[std::size_t(chunk)]++)];
  }

  template <class S>
  MatView<S> block(Index samples, int hop, int chunk) const;
  MatView<float> state(Index samples, int slot, int chunk, Index columns, Index of_row) const;
  MatView<float> key_node(Index samples, int slot, int chunk) const;
  MatView<float> sent_node(Index samples, int hop, int pair) const;

  template <class S>
  void pack(const Pass& p, MatView<const S> qkv);
  template <class S>
  void add_block(const Pass& p, int hop);  // to the pieces: the block of this hop to the next rank, that rank's before
  void add_gradients(const Pass& p, int hop, Counts& counts);
  void start(const Pass& p, const char* tensor, const char* site);
  void arrived(const Pass& p);
  template <class S>
  void attend(const Pass& p, int hop, Counts& counts, MatView<const S> qkv);
  void join(const Pass& p, int chunk, const TreeOrder::Join& join);
  template <class S>
  void differentiate(const Pass& p, int hop, Counts& counts, MatView<const S> dout, MatView<const S> qkv,
                     MatView<const S> out, MatView<const float> stats);
  void add_nodes(const Pass& p, MatView<float> older, MatView<float> newer);
  void add_arrivals(const Pass& p, int hop, Counts& counts);
  void keep_last_gradients(const Pass& p);
  template <class S>
  void write_gradients(const Pass& p, MatView<S> dqkv);

  RingShape shape_;
  int me_;
  PlantedBug bug_;
  RingOrder order_;
  BufferPtr blocks_;  // (2, own rows, 2 K D)  keys and values: of this hop, and of the next
  BufferPtr states_;  // (slots, own rows, H (D + 2))  nodes over keys; backward: of dq, (slots, own rows, H D)
  BufferPtr keys_;    // (slots, own rows, 2 K D)  nodes over queries, of own keys
  BufferPtr sent_;    // (2, pairs, rows of a chunk, 2 K D)  the same of others' keys
  std::vector<Piece> pieces_;
};

}  // namespace seeksim::runtime
