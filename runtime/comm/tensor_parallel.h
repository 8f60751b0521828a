// TensorAxis: what the ways of tensor parallelism exchange within a pass, and the launches that put it together with
// the bits of one way (kernels/slabs.h). A product that is split along K leaves a node on each way. Every way receives
// the others' nodes of the rows that it owns and folds them: a reduce-scatter; then the rows are gathered, which
// together are the bytes of a ring's all-reduce. With sequence parallelism a way owns the rows of its tokens of each
// sample and the gather is left until a product needs all rows.
//
// Launches are on the compute queue, exchanges on a queue of their own, with events between.
#pragma once

#include <optional>
#include <vector>

#include "kernels/slabs.h"
#include "runtime/comm/communicator.h"
#include "runtime/comm/edge.h"

namespace seeksim::runtime {

struct TensorShape {
  Index samples_max = 0;  // of a micro-batch
  Index tokens = 0;       // T of a sample
  Index width = 0;        // C
  Index vocabulary = 0;   // V
  bool sequence_parallel = false;
  bool embeds = true;                   // the embedding is here
  Index expert_rows_max = 0;            // rows that go through experts here, of a micro-batch
  ElementType type = ElementType::f32;  // of activations
};

// The shape for a plan's model and micro-batches of samples_max; embeds: the embeddings are on this rank.
TensorShape tensor_shape(const TrainPlan& plan, Index samples_max, bool embeds);

class TensorAxis {
 public:
  // Allocates what exchanges need of memory, once.
  TensorAxis(Device& device, const TensorShape& shape, int ways, int way, const PlantedBug& bug);

  // A new world: its members are the ways, in order. Collective over them; blocks. group: see Communicator.
  void connect(Rank& rank, std::uint32_t epoch, std::vector<int> members, TimeNs timeout_ns, int group);
  void disconnect() { comm_.reset(); }
  Communicator* communicator() { return comm_ ? &*comm_ : nullptr; }

  int ways() const { return ways_; }
  int way() const { return way_; }
  bool splits_tokens() const { return shape_.sequence_parallel; }
  // The tokens of each sample whose rows a way has between products that are split: its segments, or all.
  kernels::Stretch tokens() const;
  Index rows(Index samples) const { return samples * tokens().size; }
  Index rows_max() const { return rows(shape_.samples_max); }

  // Where this way puts its node of a product: (samples * T, C).
  MatView<float> node(Index samples) const { return mat<float>(*node_, 0, samples * shape_.tokens, shape_.width); }
  // out (rows(samples), C) = nodes of all ways + bias (unless it is empty), rounded once. What was in node() is used.
  template <class S>
  void sum_nodes(Launcher& launch, const char* tensor, const char* site, Index samples, VecView<const S> bias,
                 MatView<S> out);

  // The same of experts' products, whose rows are slots: (rows, C). of_token: slots of a token, in its order; then
  // sequence parallelism leaves a way those of its tokens alone, one sample after the other. 0: rows are no tokens'.
  MatView<float> expert_node(Index rows) const { return mat<float>(*node_, 0, rows, shape_.width); }
  template <class S>
  void sum_expert_nodes(Launcher& launch, const char* tensor, const char* site, Index rows, Index of_token,
                        MatView<S> out);

  // Where this way puts the rows of the embedding that it has: (samples * T, C).
  template <class S>
  MatView<S> embedded(Index samples) const {
    return mat<S>(*embedded_, 0, samples * shape_.tokens, shape_.width);
  }
  // out (rows(samples), C) = each row of embedded() from the way that has its token. tokens (samples * T).
  template <class S>
  void select_rows(Launcher& launch, const char* tensor, const char* site, Index samples,
                   VecView<const std::int32_t> tokens, MatView<S> out);

  // all (samples * T, C) = the rows (rows(samples), C) of all ways. With sequence parallelism only.
  template <class S>
  void gather_rows(Launcher& launch, const char* tensor, const char* site, Index samples, MatView<const S> rows,
                   MatView<S> all);

  // n floats of each way: this way's, to be filled; then everybody's; then elements [first, first + count) of each,
  // (ways, count).
  VecView<float> own_values(Index n) const { return vec<float>(*values_, way_ * n, n); }
  void gather_values(Launcher& launch, const char* tensor, const char* site, Index n);
  MatView<const float> values(Index n, Index first, Index count) const {
    return {values_.get(), first, ways_, count, n};
  }

  // losses (samples * T) from logits (samples * T, this way's columns of V), which become their gradient times scale.
  template <class S>
  void cross_entropy(Launcher& launch, Index samples, MatView<S> logits, VecView<const std::int32_t> targets,
                     float scale, VecView<float> losses);

  // The last exchange, for a caller that waits for what follows it.
  const Op& last_op() const { return last_; }

 private:
  // Rows that a way owns of a micro-batch's: `count` times `size`, the first at `first`, `step` apart.
  struct Rows {
    Index first = 0;
    Index size = 0;
    Index step = 0;
    Index count = 1;
    Index total() const { return size * count; }
  };
  // Rows that ways share out: by the tokens that they are of, or evenly where they are no tokens'.
  struct Shared {
    Index rows = 0;
    Index of_token = 1;
  };
  bool by_tokens(const Shared& all) const { return splits_tokens() && all.of_token > 0; }
  Shared of_samples(Index samples) const { return {samples * shape_.tokens, 1}; }
  Rows owned(const Shared& all, int way) const;

  // Piece i of a way's rows, in a matrix of all rows.
  template <class T>
  static VecView<T> at(MatView<T> all, const Rows& rows, Index i) {
    return {all.buffer, all.offset + (rows.first + i * rows.step) * all.cols, rows.size * all.cols};
  }
  template <class T>
  void send(int way, VecView<T> values);
  template <class T>
  void receive(int way, VecView<T> values);
  void exchange(Launcher& launch, OpKind kind, const char* tensor, const char* site);
  // Everybody's part of the rows that this way owns; returns them, (ways, rows * cols).
  template <class T>
  MatView<const T> scatter_rows(Launcher& launch, OpKind kind, const char* tensor, const char* site,
                                const Shared& shared, MatView<const T> all);
  // The rest of `all`, where this way's rows are there.
  template <class T>
  void gather_in_place(Launcher& launch, const char* tensor, const char* site, const Shared& shared, MatView<T> all);
  template <class S>
  void sum(Launcher& launch, const char* tensor, const char* site, const Shared& shared, MatView<const float> node,
           VecView<const S> bias, MatView<S> out);

  TensorShape shape_;
  int ways_, way_;
  PlantedBug bug_;
  std::optional<Communicator> comm_;
  Queue* queue_ = nullptr;
  BufferPtr node_;  // (R, C)  R = samples_max * T, or expert_rows_max where that is more
  // Scratch, since it may hold NaNs that mark what a way lacks:
  BufferPtr embedded_;  // (R, C)
  BufferPtr slots_;     // (ways, rows that this way owns, C)
  BufferPtr values_;    // (ways, most values of a way)
  BufferPtr folded_;    // (3, R)  maxima, sums and target logits of whole rows
  std::vector<Piece> pieces_;
  Op last_;
};

}  // namespace seeksim::runtime
