// AdamW, Adam with L2, Lion, Muon or SGD over a shard of the flat space: moments, the mean of weights (ema_decay), step
// count and the host's constants of a step. Muon's matrices are updated in orthogonal_update.h.
#pragma once

#include <functional>
#include <limits>
#include <optional>
#include <span>

#include "kernels/optimizer.h"
#include "runtime/launch/any_vec.h"
#include "runtime/launch/launcher.h"
#include "runtime/layout/partition.h"
#include "runtime/plan/optimizer_kinds.h"
#include "runtime/plan/plan.h"
#include "runtime/seams/seams.h"
#include "runtime/zero/orthogonal_update.h"

namespace seeksim::runtime {

// What a step reads and writes, element by element of one shard.
struct OptimizerSpaces {
  VecView<float> masters;  // fp32 weights; without a buffer there are none, and `compute` itself is updated
  AnyVec compute;          // the parameters to compute with; in fp32 the masters themselves
  AnyVec gradients;        // reduced; fp32, or the type of `compute`
  // For update() only: moments, and the mean of weights; those that the optimizer keeps.
  VecView<float> first = {}, second = {}, mean = {};
};

// Mistakes in when or of what a mean of weights is taken: planted bugs.
enum class MeanMistake : std::uint8_t { none, before_update, of_rounded, each_micro_batch };
// Mistakes in the counters of random bits: planted bugs.
enum class RoundingMistake : std::uint8_t { none, by_place, same_each_step };

class Optimizer {
 public:
  // pieces: the shard's, in order (Partition::pieces). sub_group: elements that one launch covers at most; 0: any
  // number. space: whose memory holds the moments. rounds: there are no fp32 masters, and what rounding takes is
  // counted.
  Optimizer(Device& device, const OptimizerPlan& plan, std::vector<ParameterPiece> pieces, Index sub_group,
            MemoryTag tag, Space space, bool rounds);

  // A mistake in what a step of it is (rules/mutants.h).
  void plant(Mutant mutant) {
    mutant_ = mutant;
    if (orthogonal_) orthogonal_->plant(mutant);
  }
  // A planted bug: Muon's momentum advances so often in a step.
  void advance_momentum(int times) {
    if (orthogonal_) orthogonal_->advance_momentum(times);
  }
  // A planted bug; times: a step's micro-batches.
  void mistake_mean(MeanMistake mistake, int times) {
    mean_mistake_ = mistake;
    mean_times_ = times;
  }
  // From here on bf16 weights without masters are rounded at random, by this seed.
  void round_at_random(std::uint64_t key, RoundingMistake mistake) {
    rounding_key_ = key;
    rounding_mistake_ = mistake;
  }
  // After so many steps the variance stays as it is, and gradients are what the first moments become.
  void freeze_after(std::int64_t steps) { freeze_after_ = steps; }
  // Zeroes the moments. The mean of weights begins with these.
  void reset(Launcher& launch, AnyVec weights);
  // Whether state has to be in memory matrix by matrix, so that no part of it may be cut at will.
  bool takes_matrices() const { return orthogonal_.has_value(); }
  // Elements [at, at + n) of the shard are updated when what is enqueued now is done.
  using Updated = std::function<void(Index at, Index n)>;
  // Applies one step to the shard. grad_factor: one over the loss scale, times the clip coefficient.
  void step(Launcher& launch, const OptimizerSpaces& spaces, float grad_factor, double lr, const Updated& updated = {});

  // The same in parts: counts a step, then updates elements [at, ...) of the shard with moments from elsewhere.
  kernels::OptimizerStep begin_step(Launcher& launch, bool has_masters, float grad_factor, double lr);
  // from: the state before the step, where that is elsewhere, with masters, and no matrices are taken as wholes. The
  // mean of weights is in its place.
  void update(Launcher& launch, const kernels::OptimizerStep& constants, Index at, const OptimizerSpaces& spaces,
              const Updated& updated = {}, const OptimizerSpaces* from = nullptr);
  // A planted bug: the mean of weights moves in a step that is skipped.
  void move_mean_anyway(Launcher& launch, AnyVec weights);
  // Memory for the moments: there from the beginning, unless and until they are elsewhere.
  void make_moments();
  void drop_moments();

  std::int64_t steps() const { return steps_; }  // AdamW's t
  // What it keeps of each element: moments, then the mean of weights; empty where it keeps none of the kind.
  VecView<float> first_moments() const { return {m_.get(), 0, moments_ >= 1 ? size_ : 0}; }
  VecView<float> second_moments() const { return {v_.get(), 0, moments_ == 2 ? size_ : 0}; }
  VecView<float> mean() const { return {mean_.get(), 0, has_mean() ? size_ : 0}; }
  bool has_mean() const { return keeps_mean(plan_); }
  // Those that there are, in that order.
  std::vector<AnyVec> states() const;
  // The same in the places of a step that are named after them.
  void place(std::span<const AnyVec> states, OptimizerSpaces& spaces) const;
  // Without masters: what rounding did to the last step. To be read when its launches are done; else null.
  Buffer* stagnation() const { return stagnation_.get(); }
  // Goes on after so many steps, in the same bits as if it had made them; the moments come by other ways.
  void continue_at(std::int64_t steps);
  // The same, from where `other` stands.
  void continue_from(const Optimizer& other);
  // State and steps change places with those of another one, of the same shard.
  void exchange(Optimizer& other);

 private:
  kernels::OptimizerStep next_constants(float grad_factor, double lr);
  void set_momentum(kernels::OptimizerStep& constants) const;
  bool frozen() const { return steps_ >= freeze_after_; }  // for the next step
  void count_step();
  void update_piece(Launcher& launch, const kernels::OptimizerStep& here, const ParameterPiece& piece,
                    const OptimizerSpaces& spaces, const OptimizerSpaces* from);
  void count_anew(Launcher& launch);
  void move_mean(Launcher& launch, const ParameterPiece& piece, const OptimizerSpaces& own) const;

  Device& device_;
  const OptimizerPlan& plan_;
  const OptimizerKind& kind_;
  int moments_;
  std::vector<ParameterPiece> pieces_;
  MemoryTag tag_;
  Space space_;
  Index size_ = 0;
  BufferPtr m_, v_, mean_;
  BufferPtr stagnation_;
  std::optional<OrthogonalUpdate> orthogonal_;  // where there are matrices to be taken as wholes
  Mutant mutant_{};
  MeanMistake mean_mistake_ = MeanMistake::none;
  int mean_times_ = 1;
  std::optional<std::uint64_t> rounding_key_;
  RoundingMistake rounding_mistake_ = RoundingMistake::none;
  std::int64_t steps_ = 0;
  std::int64_t freeze_after_ = std::numeric_limits<std::int64_t>::max();
  // beta^t by repeated multiplication: the same bits whether a run was interrupted or not, and no pow. The second
  // one stands where the variance was frozen.
  double beta1_power_ = 1;
  double beta2_power_ = 1;
};

// What the plan of a run has it do otherwise: rounding at random, planted bugs. members: of the data axis.
void prepare(Optimizer& optimizer, const TrainPlan& plan, int members);

}  // namespace seeksim::runtime
