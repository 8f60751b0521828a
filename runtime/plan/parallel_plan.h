// ParallelPlan: how a model is cut among ranks besides the data axis: by layers into a pipeline's stages, by slabs of
// its parameters into tensor ways. Part of Layout: it never changes a bit.
#pragma once

#include <vector>

#include "runtime/plan/pipeline_schedule.h"

namespace seeksim::runtime {

struct ParallelPlan {
  int pipeline = 1;                // stages
  int tensor = 1;                  // ways: 1, 2, 4 or 8
  bool sequence_parallel = false;  // norms and dropout between tensor-parallel parts run on a way's tokens only
  PipelineSchedule schedule = PipelineSchedule::one_f_one_b;
  int virtual_stages = 1;   // pieces of the model a stage; more than one under the interleaved schedule only
  std::vector<int> layers;  // of each piece, in the order of the model; empty: as even as can be

  int ranks() const { return pipeline * tensor; }  // of one replica of the model
  int pieces() const { return pipeline * virtual_stages; }
  // A model keeps what its weights' gradients need, so that they can be made later.
  bool defers() const { return schedule == PipelineSchedule::zero_bubble && !alone(); }
  bool alone() const { return ranks() == 1; }  // the data axis is the only one
  friend bool operator==(const ParallelPlan&, const ParallelPlan&) = default;
};

// The shape of a step. One stage has nothing to overlap: each micro-batch goes forward and back at once.
inline PipelineShape pipeline_shape(const ParallelPlan& plan, int micro_batches) {
  if (plan.pipeline == 1) return {PipelineSchedule::one_f_one_b, 1, micro_batches, 1, 0};
  return {plan.schedule, plan.pipeline, micro_batches, plan.virtual_stages, 0};
}

}  // namespace seeksim::runtime
