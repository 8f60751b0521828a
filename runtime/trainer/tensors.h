// Tensors: what a rank holds for good, and in what form: parameters, masters, gradients and the optimizer's state, flat
// where they are replicated, with a keeper where they are sharded. Their first values, and one update of them.
//
// Where workers train apart (LocalSgdPlan) a rank has all that is flat once for each worker that it serves. What is
// said of flat tensors here is said of the worker that was chosen last; the first one, unless somebody says otherwise.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "runtime/decide/membership.h"
#include "runtime/launch/typed_ops.h"
#include "runtime/layout/parameters.h"
#include "runtime/model/model.h"
#include "runtime/parts/late_gradients.h"
#include "runtime/parts/low_rank.h"
#include "runtime/parts/outer_step.h"
#include "runtime/parts/residuals.h"
#include "runtime/trainer/workbench.h"
#include "runtime/zero/gathered_weights.h"
#include "runtime/zero/optimizer.h"
#include "runtime/zero/rounded_weights.h"
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

  // The workers that are here; without workers one, number 0. Before memory is made.
  void serve(const SampleRange& workers) { workers_ = workers; }
  const SampleRange& workers() const { return workers_; }
  Index worker() const { return Index(at_); }  // the chosen one, among those that are here
  void choose(Index worker) const { at_ = std::size_t(worker); }
  // Calls each(worker) with each of them chosen, in order; then the first one is.
  template <class Each>
  void for_each_worker(Each each) const {
    for (Index worker = 0; worker < Index(flat_.size()); ++worker) {
      choose(worker);
      each(worker);
    }
    choose(0);
  }
  OuterStep* outer() { return outer_ ? &*outer_ : nullptr; }  // where workers train apart
  const OuterStep* outer() const { return outer_ ? &*outer_ : nullptr; }
  // What defines a parameter of the model: where workers train apart, the weights of the last outer step.
  AnyVec defining(const ParameterInfo& parameter) const;
  // The outer step's weights are every worker's, to compute with too.
  void take_outer_weights();

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
  // A planted bug: the mean of weights moves though the step is skipped. Waits.
  void move_mean_anyway();
  // From masters that came from elsewhere, the parameters to compute with.
  void renew_parameters();
  std::int64_t optimizer_steps() const;
  // Goes on after so many steps; the moments come by other ways.
  void continue_at(std::int64_t optimizer_steps);

  bool flat_weights_here() const { return here().weights != nullptr; }
  bool has_flat_optimizer() const { return here().optimizer.has_value(); }
  bool has_masters() const { return here().masters != nullptr; }
  bool has_flat_gradients() const { return here().sums != nullptr || here().gradients != nullptr; }
  // What defines all parameters where they are replicated, and what is computed with.
  AnyVec flat_weights() const { return has_masters() ? flat(here().masters, ElementType::f32) : flat_parameters(); }
  AnyVec flat_parameters() const { return flat(here().weights, bench_.compute_type()); }
  AnyVec flat_gradients() const;  // of what is trained
  AnyVec weights_of(const ParameterInfo& parameter) const;
  // Reduced gradients in fp32: of all parameters, the head's share, the loss (Parameters). Null where they are sharded.
  Buffer* sums() const { return here().sums.get(); }
  VecView<float> sums(Index offset, Index n) const { return vec<float>(*here().sums, offset, n); }
  // What is trained, and its state: of all parameters, or of this rank's shard.
  const Optimizer& optimizer() const { return keeper_ ? *keeper_->own().optimizer : *here().optimizer; }
  AnyVec gradients() const { return keeper_ ? keeper_->own().gradients : flat_gradients(); }
  // Held in 16 bits where the plan says so: rounded once, at the root (docs/numerics.md#r4).
  bool rounds_gradients() const { return here().gradients != nullptr; }

  Weights& in_use() {
    if (gathered_) return *gathered_;
    return here().rounded ? static_cast<Weights&>(*here().rounded) : *here().all;
  }
  ShardKeeper* keeper() { return keeper_ ? &*keeper_ : nullptr; }  // where the optimizer is sharded
  const ShardKeeper* keeper() const { return keeper_ ? &*keeper_ : nullptr; }
  Residuals* residuals() { return residuals_ ? &*residuals_ : nullptr; }  // where gradients are compressed
  const Residuals* residuals() const { return residuals_ ? &*residuals_ : nullptr; }
  LateGradients* late() { return late_ ? &*late_ : nullptr; }  // where gradients come late
  const LateGradients* late() const { return late_ ? &*late_ : nullptr; }
  LowRankFactors* factors() { return factors_ ? &*factors_ : nullptr; }  // where they travel as factors of matrices
  const LowRankFactors* factors() const { return factors_ ? &*factors_ : nullptr; }
  GatheredWeights* gathered() { return gathered_ ? &*gathered_ : nullptr; }  // where parameters are sharded
  const GatheredWeights* gathered() const { return gathered_ ? &*gathered_ : nullptr; }

 private:
  template <class T>
  void draw_piece(const ParameterPiece& piece, VecView<T> out);
  AnyVec flat(const BufferPtr& buffer, ElementType type) const;

  // What is flat, of one worker.
  struct Flat {
    BufferPtr weights;    // parameters to compute with; none where they are sharded
    BufferPtr masters;    // fp32, of what is trained, beside 16-bit parameters; none where the optimizer is sharded
    BufferPtr sums;       // reduced in fp32; none where sharded
    BufferPtr gradients;  // of what is trained, in 16 bits; none where they are held as summed, or sharded
    std::optional<ReplicatedWeights> all;
    std::optional<RoundedWeights> rounded;  // where weights are quantised
    std::optional<Optimizer> optimizer;     // where its state is replicated
  };
  const Flat& here() const { return flat_[at_]; }
  Flat& here() { return flat_[at_]; }
  void allocate_worker();
  void draw_worker();

  Workbench& bench_;
  Parameters parameters_;
  mutable std::unique_ptr<const Parameters> whole_;  // made when first asked for
  SampleRange workers_{0, 1};
  std::deque<Flat> flat_ = std::deque<Flat>(1);
  mutable std::size_t at_ = 0;
  std::optional<OuterStep> outer_;
  std::optional<ShardKeeper> keeper_;  // where it is sharded
  std::optional<GatheredWeights> gathered_;
  std::optional<Residuals> residuals_;
  std::optional<LateGradients> late_;
  std::optional<LowRankFactors> factors_;
};

}  // namespace seeksim::runtime
