// ParallelPlan: how a model is cut among ranks besides the data axis: by layers into a pipeline's stages, by slabs of
// its parameters into tensor ways. Part of Layout: it never changes a bit.
#pragma once

#include <vector>

#include "runtime/pipeline_schedule.h"

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
  bool alone() const { return ranks() == 1; }  // the data axis is the only one
  friend bool operator==(const ParallelPlan&, const ParallelPlan&) = default;
};

}  // namespace seeksim::runtime
