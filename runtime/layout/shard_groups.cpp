#include "runtime/layout/shard_groups.h"

#include <algorithm>

#include "kernels/check.h"
#include "runtime/layout/quantised_groups.h"

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

ShardGroups secondary_groups(const Layout& layout, int ranks) {
  const bool keeps = layout.zero.placement().parameters == Place::sharded && layout.zero.hpz_partition > 1;
  return shard_groups(keeps ? int(std::min<std::int64_t>(layout.zero.hpz_partition, ranks)) : 0, ranks);
}

StepCut step_cut(const TrainPlan& plan, int replicas, int data) {
  const Index batch = plan.definition.global_batch;
  const ShardGroups groups = shard_groups(plan.layout, replicas);
  StepCut cut;
  cut.leaves = batch;
  cut.members = groups.size;
  cut.micro = std::min<Index>(plan.layout.micro_batch, batch);
  cut.interleaved = plan.layout.zero.placement().gradients == Place::sharded;
  cut.grain = std::max<Index>(plan.definition.part_samples(), plan.definition.model.experts.samples);
  if (plan.definition.quantised_gradients.on()) {  // groups are quantised whole, by the rank that has their samples
    cut.grain = quantised_groups(plan.definition).samples;
    cut.micro = std::max(cut.micro / cut.grain, Index(1)) * cut.grain;
  }
  cut.each = plan.layout.parallel.expert;
  cut.groups = groups.groups();
  cut.group = groups.group_of(data);
  return cut;
}

SampleRange share_of_step(const TrainPlan& plan, int replicas, int data) {
  const ShardGroups groups = shard_groups(plan.layout, replicas);
  const Index together = plan.definition.model.experts.samples;
  const SampleRange group = samples_of(plan.definition.global_batch, groups.groups(), groups.group_of(data), together);
  const SampleRange own = samples_of(group.size(), groups.size, groups.place_of(data), together);
  return {group.begin + own.begin, group.begin + own.end};
}

int micro_batch_count(const TrainPlan& plan, int replicas, int data) {
  const StepCut cut = step_cut(plan, replicas, data);
  if (cut.interleaved) return cut.count();
  if (plan.definition.local_sgd.on())
    return int(micro_batches_of_parts(cut.samples_of_rank(0, data), cut.micro, cut.grain).size());
  return int(micro_batches(share_of_step(plan, replicas, data), plan.layout.micro_batch).size());
}

std::string problem_of_schedule(const TrainPlan& plan, int replicas) {
  if (plan.layout.parallel.pipeline == 1) return "";
  int last = 0;  // most have as many as the one before
  for (int data = 0; data < replicas; ++data) {
    const int count = micro_batch_count(plan, replicas, data);
    if (count == last || count == 0) continue;
    if (std::string why = problem(pipeline_shape(plan.layout.parallel, count)); !why.empty()) return why;
    last = count;
  }
  return "";
}

}  // namespace seeksim::runtime
