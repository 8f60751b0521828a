#include "harness/scenario/variants.h"

#include <algorithm>

#include "runtime/layout/copy_places.h"
#include "runtime/layout/shard_groups.h"
#include "runtime/rules/bugs.h"

namespace seeksim::harness {

bool is_fast(const Scenario& scenario) { return scenario.train.numerics == runtime::Numerics::fast; }

bool is_of_shapes(const Scenario& scenario) { return scenario.train.numerics == runtime::Numerics::shapes; }

kernels::FastWay fast_way(const runtime::TrainPlan& plan) {
  using kernels::FastSlip;
  const FastSlip slip = plan.bug.is(runtime::Bug::fast_leaves_out_last_k)     ? FastSlip::last_k_left_out
                        : plan.bug.is(runtime::Bug::fast_accumulates_in_bf16) ? FastSlip::sums_in_bf16
                        : plan.bug.is(runtime::Bug::fast_ring_in_bf16)        ? FastSlip::ring_in_bf16
                                                                              : FastSlip::none;
  return {plan.tf32, slip};
}

int data_size(const Scenario& scenario) {
  const runtime::ParallelPlan& parallel = scenario.train.layout.parallel;
  return (scenario.world.ranks() - scenario.train.recovery.spares) / parallel.ranks_of_sample();
}

int micro_batches_of_replica(const Scenario& scenario) {
  const runtime::Layout& layout = scenario.train.layout;
  const runtime::Index batch = scenario.train.definition.global_batch;
  if (batch < 1 || layout.micro_batch < 1 || data_size(scenario) < 1) return 0;
  int most = 0;
  for (int replica = 0; replica < data_size(scenario); ++replica)
    most = std::max(most, runtime::micro_batch_count(scenario.train, data_size(scenario), replica));
  return most;
}

namespace {
void leave_out(const GoldenPlan& golden, runtime::Definition& definition) {
  definition.skip_steps = golden.skip_steps;
  definition.drop_batches = golden.drop_batches;
  std::erase_if(definition.changes, [&](const runtime::Change& change) {
    const auto& undone = golden.undo_changes;
    return std::find(undone.begin(), undone.end(), change.step) != undone.end();
  });
}
}  // namespace

Scenario one_rank(const Scenario& scenario) {
  Scenario one = undisturbed(scenario);
  one.world.nodes = one.world.ranks_per_node = 1;
  one.world.device.capacity_bytes = sim::DeviceModel{}.capacity_bytes;  // short of memory are the others
  one.train.layout.zero = {};                                           // nothing to shard
  one.train.layout.offload = {};
  one.train.layout.checkpointing = {};
  one.train.layout.parallel = {};
  leave_out(scenario.golden, one.train.definition);
  one.train.checkpoint = {};
  one.train.recovery = {};
  if (is_fast(scenario)) one.train.numerics = runtime::Numerics::exact;
  one.train.provenance = {};
  one.train.layout.evaluation_micro_batch = 0;
  const int together = one.train.definition.model.experts.samples;  // no micro-batch has a part of them
  one.train.layout.micro_batch = std::min(std::max(8 / together, 1) * together, one.train.definition.global_batch);
  one.accumulation =
      (one.train.definition.global_batch + one.train.layout.micro_batch - 1) / one.train.layout.micro_batch;
  return one;
}

Scenario undisturbed(const Scenario& scenario) {
  Scenario other = scenario;
  other.faults.clear();
  other.own_faults.clear();
  other.planned = {};
  other.checks.clear();
  other.expect = {};
  other.sweep = {};
  other.world.verify = false;
  other.world.schedule = {};
  other.world.race_detector = false;
  other.train.counts_choices = false;
  // A mistake of definition is one that a run makes beside others too.
  if (!scenario.train.bug.is(runtime::Bug::definition)) other.train.bug = {};
  return other;
}

Scenario teacher(const Scenario& scenario) {
  Scenario other = undisturbed(scenario);
  other.name = scenario.name + "_by_the_contract";
  other.train.numerics = runtime::Numerics::exact;
  other.train.tf32 = false;  // the kind of arithmetic that is compared with it
  leave_out(scenario.golden, other.train.definition);
  other.train.checkpoint = {};
  other.train.provenance = {};
  other.train.recovery.restarts_max = 0;
  return other;
}

Scenario without_quirks(const Scenario& scenario) {
  Scenario other = scenario;
  runtime::Definition& d = other.train.definition;
  if (d.quirks.has(runtime::Quirk::ds_old_default_clipping)) d.gradient_clipping = runtime::default_clipping({});
  if (d.quirks.has(runtime::Quirk::experts_by_micro_batch)) d.model.experts.samples = 1;
  d.quirks = {};
  other.checks.clear();
  other.expect = {};
  return other;
}

runtime::ShardGroups shard_groups_of(const Scenario& scenario) {
  const runtime::Layout& layout = scenario.train.layout;
  return runtime::shard_groups(layout,
                               (scenario.world.ranks() - scenario.train.recovery.spares) / layout.parallel.ranks());
}

int peer_copies_at_most(const Scenario& scenario) {
  const runtime::RecoveryPlan& recovery = scenario.train.recovery;
  if (recovery.policy != runtime::RecoveryPolicy::rebuild_and_redo) return 0;
  const runtime::ShardGroups groups = shard_groups_of(scenario);
  const int ways = scenario.train.layout.parallel.ranks();
  const auto node_of = [&](int rank) { return rank / scenario.world.ranks_per_node; };
  int most = 0;
  for (int way = 0; way < ways; ++way) {
    std::vector<int> axis;
    for (int data = 0; data < groups.ranks; ++data) axis.push_back(data * ways + way);
    for (int group = 0; group < groups.groups(); ++group) {
      const runtime::CopyPlaces at(groups.members(axis, group), node_of, groups.copies(recovery.peer_copies));
      most = std::max(most, at.kept_at_most());
    }
  }
  return most;
}

}  // namespace seeksim::harness
