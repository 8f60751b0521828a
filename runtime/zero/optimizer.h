// AdamW, Adam with L2, Lion or Muon over a shard of the flat space: moments, step count and the host's constants of a
// step. Muon's matrices are updated in orthogonal_update.h.
#pragma once

#include <functional>
#include <optional>

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
  VecView<float> masters;        // fp32 weights; without a buffer there are none, and `compute` itself is updated
  AnyVec compute;                // the parameters to compute with; in fp32 the masters themselves
  AnyVec gradients;              // reduced; fp32, or the type of `compute`
  VecView<float> first, second;  // moments, for update() only; an optimizer with one has no second
};

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
  // Zeroes the moments.
  void reset(Launcher& launch);
  // Whether state has to be in memory matrix by matrix, so that no part of it may be cut at will.
  bool takes_matrices() const { return orthogonal_.has_value(); }
  // Elements [at, at + n) of the shard are updated when what is enqueued now is done.
  using Updated = std::function<void(Index at, Index n)>;
  // Applies one step to the shard. grad_factor: one over the loss scale, times the clip coefficient.
  void step(Launcher& launch, const OptimizerSpaces& spaces, float grad_factor, double lr, const Updated& updated = {});

  // The same in parts: counts a step, then updates elements [at, ...) of the shard with moments from elsewhere.
  kernels::OptimizerStep begin_step(Launcher& launch, bool has_masters, float grad_factor, double lr);
  void update(Launcher& launch, const kernels::OptimizerStep& constants, Index at, const OptimizerSpaces& spaces,
              const Updated& updated = {});
  // Memory for the moments: there from the beginning, unless and until they are elsewhere.
  void make_moments();
  void drop_moments();

  std::int64_t steps() const { return steps_; }  // AdamW's t
  VecView<float> first_moments() const { return {m_.get(), 0, size_}; }
  VecView<float> second_moments() const { return {v_.get(), 0, has_second() ? size_ : 0}; }  // empty where it has none
  bool has_second() const { return kind_.moments() == 2; }
  // Those that there are.
  std::vector<AnyVec> moments() const;
  // Without masters: what rounding did to the last step. To be read when its launches are done; else null.
  Buffer* stagnation() const { return stagnation_.get(); }
  // Goes on after so many steps, in the same bits as if it had made them; the moments come by other ways.
  void continue_at(std::int64_t steps);
  // The same, from where `other` stands.
  void continue_from(const Optimizer& other);

 private:
  kernels::OptimizerStep next_constants(float grad_factor, double lr);
  void update_piece(Launcher& launch, const kernels::OptimizerStep& here, const ParameterPiece& piece,
                    const OptimizerSpaces& spaces);
  void count_anew(Launcher& launch);

  Device& device_;
  const OptimizerPlan& plan_;
  const OptimizerKind& kind_;
  std::vector<ParameterPiece> pieces_;
  MemoryTag tag_;
  Space space_;
  Index size_ = 0;
  BufferPtr m_, v_;
  BufferPtr stagnation_;
  std::optional<OrthogonalUpdate> orthogonal_;  // where there are matrices to be taken as wholes
  Mutant mutant_{};
  std::int64_t steps_ = 0;
  // beta^t by repeated multiplication: the same bits whether a run was interrupted or not, and no pow.
  double beta1_power_ = 1;
  double beta2_power_ = 1;
};

}  // namespace seeksim::runtime
