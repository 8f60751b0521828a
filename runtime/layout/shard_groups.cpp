#include "runtime/layout/shard_groups.h"

#include <algorithm>

#include "kernels/check.h"

namespace seeksim::runtime {

std::vector<int> ShardGroups::members(const std::vector<int>& axis, int group) const {
  SEEKSIM_CHECK_EQ(int(axis.size()), ranks);
  return {axis.begin() + group * size, axis.begin() + (group + 1) * size};
}

std::vector<int> ShardGroups::replicas(const std::vector<int>& axis, int place) const {
  SEEKSIM_CHECK_EQ(int(axis.size()), ranks);
  std::vector<int> all;
  for (int group = 0; group < groups(); ++group) all.push_back(axis[std::size_t(group * size + place)]);
  return all;
}

ShardGroups shard_groups(int asked, int ranks) {
  SEEKSIM_CHECK(asked >= 0 && ranks > 0, "shard groups of %d of %d ranks", asked, ranks);
  if (asked == 0 || asked >= ranks) return {ranks, ranks};
  int size = asked;
  while (ranks % size != 0) ++size;
  return {ranks, size};
}

ShardGroups shard_groups(const Layout& layout, int ranks) {
  const bool shards = layout.zero.placement().optimizer == Place::sharded;
  return shard_groups(shards ? std::max(layout.parallel.shard_group, 0) : 0, ranks);
}

StepCut step_cut(const TrainPlan& plan, int replicas, int data) {
  const Index batch = plan.definition.global_batch;
  const ShardGroups groups = shard_groups(plan.layout, replicas);
  StepCut cut;
  cut.leaves = batch;
  cut.members = groups.size;
  cut.micro = std::min<Index>(plan.layout.micro_batch, batch);
  cut.interleaved = plan.layout.zero.placement().gradients == Place::sharded;
  cut.grain = plan.definition.compression.group_samples(batch);
  cut.each = plan.layout.parallel.expert;
  cut.groups = groups.groups();
  cut.group = groups.group_of(data);
  return cut;
}

}  // namespace seeksim::runtime
