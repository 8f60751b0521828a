// SpeculativeStep: where the optimizer runs on the host, it steps with a bucket's gradients as they come home, before
// anybody knows the gradient's norm or whether the step will be committed: SuperOffload's speculation. What it makes
// lies beside the state, which stays as it was. If the step turns out as it was guessed, only the rest is still to be
// made; if it is skipped, given up, or clipped after all, the result is left. No bit depends on it.
#pragma once

#include <utility>
#include <vector>

#include "runtime/zero/optimizer.h"

namespace seeksim::runtime {

// The state of a shard, as far as a step is concerned.
struct StateInUse {
  Index elements;
  VecView<float>& masters;  // in fp32 the parameters; none where there are no masters
  AnyVec& parameters;
  VecView<float> sums;  // of gradients, in fp32
  AnyVec gradients;     // as they are held
  Optimizer& optimizer;
};

class SpeculativeStep {
 public:
  // Memory for a result beside `own`, of the same form, for an optimizer made as own's is. Goes when the state goes:
  // their buffers change places.
  SpeculativeStep(Device& device, const StateInUse& own, Optimizer optimizer, const PlantedBug& bug, Space space);

  // A step of the state as it is now, with these constants.
  void begin(Launcher& launch, const StateInUse& own, float grad_factor, double lr);
  // The step's reduced gradients [at, at + n) are there. Enqueued.
  void update(Launcher& launch, const StateInUse& own, Index at, Index n);
  // Whether the step was guessed right.
  bool holds(float grad_factor, double lr) const;
  // All gradients are there: makes the rest, and the result the state. updated: as of Optimizer::step().
  void take(Launcher& launch, const StateInUse& own, const Optimizer::Updated& updated);

 private:
  using Ranges = std::vector<std::pair<Index, Index>>;  // first, end
  Ranges rest(Index elements) const;
  void guess(Launcher& launch, const StateInUse& own, Index at, Index n);
  std::vector<AnyVec> values(const Optimizer& optimizer, VecView<float> masters, AnyVec parameters) const;
  static OptimizerSpaces spaces(const Optimizer& optimizer, VecView<float> masters, AnyVec parameters, AnyVec gradients,
                                Index at, Index n);

  PlantedBug bug_;
  Optimizer optimizer_;
  std::vector<BufferPtr> buffers_;
  VecView<float> masters_;
  AnyVec parameters_;
  bool begun_ = false;
  float grad_factor_ = 1;
  double lr_ = 0;
  kernels::OptimizerStep constants_;
  Ranges done_;
};

}  // namespace seeksim::runtime
