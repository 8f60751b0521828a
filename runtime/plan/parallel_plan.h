// ParallelPlan: how a model is cut among ranks besides the data axis: by layers into a pipeline's stages, by slabs of
// its parameters into tensor ways, its experts among the ranks of an expert group, or the tokens of each sample among
// those of a context group. Part of Layout: it never changes a bit.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/plan/pipeline_schedule.h"

namespace seeksim::runtime {

class GatherRule;  // comm/gather_rule.h

struct ParallelPlan {
  int pipeline = 1;  // stages
  int tensor = 1;    // ways: 1, 2, 4 or 8
  int expert = 1;    // ranks of an expert group, which have samples of their own; tensor ways of one do not
  int context = 1;   // ranks of a context group, which share each sample's tokens: 1, 2, 4 or 8; with one way of others
  bool context_zigzag = false;  // each has a chunk from the front of a sample and one from its end, not one stretch
  bool ring_attention = false;  // its ranks attend to blocks of keys and values that go around, not by heads of theirs
  int shard_group = 0;  // data-parallel ranks among which ZeRO cuts, with replicas in other groups; 0: all of them
  bool sequence_parallel = false;  // norms and dropout between tensor-parallel parts run on a way's tokens only
  PipelineSchedule schedule = PipelineSchedule::one_f_one_b;
  std::string own_schedule;                           // its name, of the schedule `own`
  std::shared_ptr<const ScheduleRule> schedule_rule;  // likewise
  std::string own_gather;                             // the name of gather_rule; empty: gathers go in one go
  std::shared_ptr<const GatherRule> gather_rule;      // in which rounds they travel
  int virtual_stages = 1;   // pieces of the model a stage; more than one under the interleaved schedule only
  std::vector<int> layers;  // of each piece, in the order of the model; empty: as even as can be

  // Ranks of a stage that go through each of its layers together: tensor ways and an expert group, or a context group.
  int ways() const { return tensor * expert * context; }
  int ranks_of_sample() const { return pipeline * tensor * context; }  // that work on the same samples
  int ranks() const { return pipeline * ways(); }                      // of one replica of the model
  int pieces() const { return pipeline * virtual_stages; }
  // A model keeps what its weights' gradients need, so that they can be made later.
  bool defers() const { return splits_backward() && pipeline * tensor > 1; }
  bool splits_backward() const {
    return schedule == PipelineSchedule::zero_bubble || (schedule_rule != nullptr && schedule_rule->splits_backward());
  }
  std::string_view schedule_name() const {
    return schedule == PipelineSchedule::own ? std::string_view(own_schedule) : name(schedule);
  }
  bool alone() const { return ranks() == 1; }  // the data axis is the only one
  friend bool operator==(const ParallelPlan&, const ParallelPlan&) = default;
};

// The shape of a step. One stage has nothing to overlap: each micro-batch goes forward and back at once.
inline PipelineShape pipeline_shape(const ParallelPlan& plan, int micro_batches) {
  if (plan.pipeline == 1) return {PipelineSchedule::one_f_one_b, 1, micro_batches, 1, 0, nullptr};
  return {plan.schedule, plan.pipeline, micro_batches, plan.virtual_stages, 0, plan.schedule_rule};
}

}  // namespace seeksim::runtime
