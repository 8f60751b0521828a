// Tensors: what a rank holds for good, and in what form: parameters, masters, gradients and the optimizer's state, flat
// where they are replicated, with a keeper where they are sharded. Their first values, and one update of them.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "runtime/decide/membership.h"
#include "runtime/launch/typed_ops.h"
#include "runtime/layout/parameters.h"
#include "runtime/model/model.h"
#include "runtime/trainer/workbench.h"
#include "runtime/zero/gathered_weights.h"
#include "runtime/zero/optimizer.h"
#include "runtime/zero/residuals.h"
#include "runtime/zero/shard_keeper.h"

namespace seeksim::runtime {

class Tensors {
 public:
  // seats: those of the first world, which decide which part of the model is here.
  Tensors(Workbench& bench, const Seats& seats);

  const Parameters& parameters() const { return parameters_; }  // of this rank's stage and way
  const Parameters& whole() const;                              // the whole model's
  // Where an element of this rank's gradients is in those of the whole model.
  Index place_in_whole(Index gradient) const;

  // Memory, in this order: first what is flat, then, when all that depends on it has its own, optimizer and shards.
  void allocate_flat();
  void allocate_state();
  // Initial values of what is flat; each shard draws its own.
  void draw();
  // Initial values of some pieces, rounded to the type in which they are wanted.
  void draw(const std::vector<ParameterPiece>& pieces, AnyVec out);
  // Zeroes the moments, where they are replicated.
  void reset_optimizer();
  // Steps that the optimizer makes with zero gradients before the first one: none, unless a quirk wants them.
  void start_optimizer();

  // One step of the optimizer. Throws DiskLost where this rank's files are gone and its peers' copies have taken it.
  void update(float grad_factor, double lr);
  // From masters that came from elsewhere, the parameters to compute with.
  void renew_parameters();
  std::int64_t optimizer_steps() const;
  // Goes on after so many steps; the moments come by other ways.
  void continue_at(std::int64_t optimizer_steps);

  bool flat_weights_here() const { return weights_ != nullptr; }
  bool has_flat_optimizer() const { return optimizer_.has_value(); }
  bool has_masters() const { return masters_ != nullptr; }
  bool has_flat_gradients() const { return sums_ != nullptr || gradients_ != nullptr; }
  // What defines all parameters where they are replicated, and what is computed with.
  AnyVec flat_weights() const { return masters_ ? flat(masters_, ElementType::f32) : flat_parameters(); }
  AnyVec flat_parameters() const { return flat(weights_, bench_.compute_type()); }
  AnyVec flat_gradients() const;  // of what is trained
  AnyVec weights_of(const ParameterInfo& parameter) const;
  // Reduced gradients in fp32: of all parameters, the head's share, the loss (Parameters). Null where they are sharded.
  Buffer* sums() const { return sums_.get(); }
  VecView<float> sums(Index offset, Index n) const { return vec<float>(*sums_, offset, n); }
  // What is trained, and its state: of all parameters, or of this rank's shard.
  const Optimizer& optimizer() const { return keeper_ ? *keeper_->own().optimizer : *optimizer_; }
  AnyVec gradients() const { return keeper_ ? keeper_->own().gradients : flat_gradients(); }
  // Held in 16 bits where the plan says so: rounded once, at the root (docs/numerics.md#r4).
  bool rounds_gradients() const { return gradients_ != nullptr; }

  Weights& in_use() { return gathered_ ? static_cast<Weights&>(*gathered_) : *all_weights_; }
  ShardKeeper* keeper() { return keeper_ ? &*keeper_ : nullptr; }  // where the optimizer is sharded
  const ShardKeeper* keeper() const { return keeper_ ? &*keeper_ : nullptr; }
  Residuals* residuals() { return residuals_ ? &*residuals_ : nullptr; }  // where gradients are compressed
  const Residuals* residuals() const { return residuals_ ? &*residuals_ : nullptr; }
  GatheredWeights* gathered() { return gathered_ ? &*gathered_ : nullptr; }  // where parameters are sharded
  const GatheredWeights* gathered() const { return gathered_ ? &*gathered_ : nullptr; }

 private:
  template <class T>
  void draw_piece(const ParameterPiece& piece, VecView<T> out);
  AnyVec flat(const BufferPtr& buffer, ElementType type) const;

  Workbench& bench_;
  Parameters parameters_;
  mutable std::unique_ptr<const Parameters> whole_;  // made when first asked for
  BufferPtr weights_;                                // parameters to compute with; none where they are sharded
  BufferPtr masters_;    // fp32, of what is trained, beside 16-bit parameters; none where the optimizer is sharded
  BufferPtr sums_;       // reduced in fp32; none where sharded
  BufferPtr gradients_;  // of what is trained, in 16 bits; none where they are held as summed, or sharded
  std::optional<ReplicatedWeights> all_weights_;
  std::optional<Optimizer> optimizer_;  // where its state is replicated
  std::optional<ShardKeeper> keeper_;   // where it is sharded
  std::optional<GatheredWeights> gathered_;
  std::optional<Residuals> residuals_;
};

}  // namespace seeksim::runtime
