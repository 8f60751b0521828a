// AdamW (and Adam with L2) over a shard of the flat space: moments, step count and the host's constants of a step.
#pragma once

#include "runtime/launcher.h"
#include "runtime/partition.h"
#include "runtime/plan.h"
#include "runtime/seams.h"

namespace seeksim::runtime {

class Optimizer {
 public:
  // pieces: the shard's, in order (Partition::pieces). sub_group: elements that one launch covers at most; 0: any
  // number.
  Optimizer(Device& device, const OptimizerPlan& plan, std::vector<ParameterPiece> pieces, Index sub_group,
            MemoryTag tag);

  // Zeroes the moments.
  void reset(Launcher& launch);
  // Applies one step to the shard. weights, gradients: the shard's; grad_factor: the clip coefficient.
  void step(Launcher& launch, VecView<float> weights, VecView<const float> gradients, float grad_factor, double lr);

  std::int64_t steps() const { return steps_; }  // Adam's t
  VecView<float> first_moments() const { return {m_.get(), 0, size_}; }
  VecView<float> second_moments() const { return {v_.get(), 0, size_}; }
  // Goes on where `other` stands; the moments come by other ways.
  void continue_from(const Optimizer& other);

 private:
  const OptimizerPlan& plan_;
  std::vector<ParameterPiece> pieces_;
  Index size_ = 0;
  BufferPtr m_, v_;
  std::int64_t steps_ = 0;
  // beta^t by repeated multiplication: the same bits whether a run was interrupted or not, and no pow.
  double beta1_power_ = 1;
  double beta2_power_ = 1;
};

}  // namespace seeksim::runtime
