// AdamW (and Adam with L2) over the flat space: moments, step count and the host's constants of a step.
#pragma once

#include "runtime/gpt2_parameters.h"
#include "runtime/launcher.h"
#include "runtime/plan.h"
#include "runtime/seams.h"

namespace seeksim::runtime {

class Optimizer {
 public:
  Optimizer(Device& device, const OptimizerPlan& plan, const Gpt2Parameters& parameters);

  // Zeroes the moments.
  void reset(Launcher& launch);
  // Applies one step to all parameters. gradients: reduced; grad_factor: the clip coefficient.
  void step(Launcher& launch, Buffer& weights, Buffer& gradients, float grad_factor, double lr);

  std::int64_t steps() const { return steps_; }  // Adam's t
  Buffer& first_moments() const { return *m_; }
  Buffer& second_moments() const { return *v_; }

 private:
  const OptimizerPlan& plan_;
  const Gpt2Parameters& parameters_;
  BufferPtr m_, v_;
  std::int64_t steps_ = 0;
  // beta^t by repeated multiplication: the same bits whether a run was interrupted or not, and no pow.
  double beta1_power_ = 1;
  double beta2_power_ = 1;
};

}  // namespace seeksim::runtime
