// ShardGroups: where ZeRO's shards live inside groups of data-parallel ranks, as in HSDP and MiCS. Each group holds
// every shard once, and the ranks at one place of their groups hold the same shard. A group is neighbours of the data
// axis. One group of all ranks is ZeRO as DeepSpeed has it.
#pragma once

#include <string>
#include <vector>

#include "runtime/layout/shard.h"
#include "runtime/plan/plan.h"

namespace seeksim::runtime {

struct ShardGroups {
  int ranks = 1;  // of the data axis
  int size = 1;   // ranks of a group, which is also the number of shards

  int groups() const { return ranks / size; }
  // position: on the data axis.
  int group_of(int position) const { return position / size; }
  int place_of(int position) const { return position % size; }  // which is the number of its shard

  // Of the ranks of the data axis, by position: those of one group, by place; those at one place, by group.
  std::vector<int> members(const std::vector<int>& axis, int group) const;
  std::vector<int> replicas(const std::vector<int>& axis, int place) const;

  // Copies of each shard that a group keeps besides its owner, so that all groups together have `wanted` more than one.
  int copies(int wanted) const { return (wanted + groups()) / groups() - 1; }

  friend bool operator==(const ShardGroups&, const ShardGroups&) = default;
};

// Groups of the smallest size that is at least `asked` and divides `ranks`: after a loss no rank is left over, and no
// shard is larger than it was asked to be. asked: 0 is all ranks, and so is more than there are.
ShardGroups shard_groups(int asked, int ranks);
// Those of a plan, on a data axis of so many ranks; one group where nothing is sharded.
ShardGroups shard_groups(const Layout& layout, int ranks);

// The groups that keep all parameters once more, from which backward gathers them (ZeRO++'s hpZ); one group where none
// does.
ShardGroups secondary_groups(const Layout& layout, int ranks);

// How a step's samples are cut among the ranks of a world of `replicas` on the data axis, as those see it that share a
// shard group with the one at `data`: ranks of the cut are places in that group (expert groups: of all ranks).
StepCut step_cut(const TrainPlan& plan, int replicas, int data);
// The samples of a step that the one at `data` has where they are contiguous (gradients replicated).
SampleRange share_of_step(const TrainPlan& plan, int replicas, int data);
// Micro-batches of the one at `data` in a step.
int micro_batch_count(const TrainPlan& plan, int replicas, int data);
// Why a pipeline's schedule cannot run the micro-batches that a world of so many replicas has; empty: it can.
std::string problem_of_schedule(const TrainPlan& plan, int replicas);

}  // namespace seeksim::runtime
