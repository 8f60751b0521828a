// ContextGroup: ranks that share the tokens of each sample, while each has all parameters. Between attentions a rank
// has the rows of its own tokens (layout/context_cut.h). For attention they exchange all-to-all (Ulysses, Jacobs et al.
// 2023): each then has the rows of all tokens, of its own heads; and once more on the way back. Or blocks of keys and
// values go around (ring_attention.h), and each rank attends with its own queries, of all heads. A sample's gradient of
// a parameter is the tree over its chunks, of which each rank has its own: the ranks bring those together, before any
// two samples are added.
//
// A rank's rows go by chunk, then sample, then token, so that a chunk of all samples is one stretch of rows. Rows of
// all tokens go by sample, then token.
//
// Launches are on the compute queue, exchanges on a queue of their own, with events between.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "runtime/comm/communicator.h"
#include "runtime/comm/edge.h"
#include "runtime/comm/ring_attention.h"
#include "runtime/layout/context_cut.h"
#include "runtime/layout/parameters.h"

namespace seeksim::runtime {

struct ContextShape {
  Index samples_max = 0;  // of a micro-batch
  ContextCut cut;
  Index columns = 0;                    // of the widest rows that go to heads or come from them
  Index gradients = 0;                  // elements of the largest range of gradients that is summed at once
  ElementType type = ElementType::f32;  // of activations
  std::optional<RingShape> ring;        // where keys and values go around
};

// The shape for a plan's model, micro-batches of samples_max and a rank's parameters.
ContextShape context_shape(const TrainPlan& plan, const Parameters& parameters, Index samples_max);

class ContextGroup {
 public:
  // Allocates what exchanges need of memory, once.
  ContextGroup(Device& device, const ContextShape& shape, int me, const PlantedBug& bug);

  // A new world: its members are the ranks of the group, in order. Collective over them; blocks. group: see
  // Communicator.
  void connect(Rank& rank, std::uint32_t epoch, std::vector<int> members, TimeNs timeout_ns, int group);
  void disconnect() { comm_.reset(); }
  Communicator* communicator() { return comm_ ? &*comm_ : nullptr; }

  const ContextCut& cut() const { return shape_.cut; }
  int ranks() const { return shape_.cut.ranks; }
  int me() const { return me_; }
  // The first token of this rank's chunk i.
  Index first_token(int i) const { return shape_.cut.first(me_, i); }

  // heads (samples * T, C / ranks) = columns [me * C / ranks, ...) of all ranks' rows (own rows, C).
  template <class S>
  void to_heads(Launcher& launch, const char* tensor, const char* site, Index samples, MatView<const S> rows,
                MatView<S> heads);
  // The inverse: rows (own rows, C) from all ranks' heads (samples * T, C / ranks).
  template <class S>
  void to_rows(Launcher& launch, const char* tensor, const char* site, Index samples, MatView<const S> heads,
               MatView<S> rows);

  // Where keys and values go around; else null.
  RingAttention* ring() { return ring_ ? &*ring_ : nullptr; }
  RingAttention::Link link();

  // all (samples * T) = the values of all ranks' rows, of which `own` are this rank's.
  void gather_values(Launcher& launch, const char* tensor, const char* site, Index samples, VecView<const float> own,
                     VecView<float> all);

  // Gradients of a range of n elements. Where this rank puts the node of its chunk i of a sample, of so many samples;
  // then: each of out, (n) each, is the tree over all chunks of each sample of a block, then over those samples.
  VecView<float> node(Index samples, int i, Index sample, Index n) const {
    return vec<float>(*nodes_, (i * samples + sample) * n, n);
  }
  struct Block {
    Index first = 0;  // sample of the micro-batch
    Index count = 0;
    VecView<float> out;
  };
  void sum_nodes(Launcher& launch, const char* tensor, const char* site, Index samples, Index n,
                 std::span<const Block> blocks);

 private:
  // A rank's part of n elements, as even as can be.
  kernels::Stretch slice(Index n, int rank) const {
    const Index first = n * rank / ranks();
    return {first, n * (rank + 1) / ranks() - first};
  }
  // Where the rows of a rank's chunk i of a sample begin: among those of all tokens; among that rank's own.
  Index in_sample(Index sample, int rank, int i) const;
  Index in_rank(Index samples, Index sample, int i) const;
  template <class T>
  void add(int rank, bool send, VecView<T> values);
  void exchange(Launcher& launch, OpKind kind, const char* tensor, const char* site);
  void sum_own_nodes(Launcher& launch, const char* tensor, const char* site, Index samples, Index n,
                     std::span<const Block> blocks);
  template <class S>
  MatView<S> packed(int rank, Index rows, Index columns) const {
    return mat<S>(*packed_, rank * rows * columns, rows, columns);
  }

  ContextShape shape_;
  int me_;
  PlantedBug bug_;
  std::optional<Communicator> comm_;
  Queue* queue_ = nullptr;
  std::optional<RingAttention> ring_;
  BufferPtr nodes_;  // (chunks of a rank, samples, n)
  // Scratch, since a smaller micro-batch leaves some of it as it was:
  BufferPtr packed_;  // (ranks, own rows, columns / ranks)  none where keys and values go around
  BufferPtr slices_;  // (chunks, samples, this rank's part of n)
  std::vector<Piece> pieces_;
};

}  // namespace seeksim::runtime
