#include "harness/loading/features/shard_groups.h"

#include <fmt/format.h>

#include "harness/loading/features/refusals.h"
#include "harness/scenario/variants.h"

namespace seeksim::harness {

namespace {

// Groups that keep all parameters once more.
void check_secondary_groups(const Reader& top, const Scenario& scenario) {
  const runtime::Layout& layout = scenario.train.layout;
  const std::int64_t asked = layout.zero.hpz_partition;
  if (asked <= 1 || layout.zero.stage < 3) return;
  constexpr const char* kAt = "/deepspeed/zero_optimization/zero_hpz_partition_size";
  const int expert = layout.parallel.expert;
  if (const int sharing = data_size(scenario) / expert; sharing > 0 && sharing % asked != 0)
    top.findings().add(kAt,
                       fmt::format("{} ranks {}, and groups of {} ranks do not divide them", sharing,
                                   expert > 1 ? "have the same experts" : "share the batch", asked),
                       "Use a divisor of their number, or 1.");
  if (layout.parallel.shard_group > 0)
    top.findings().add(kAt, "not supported: secondary shards where shards are in groups themselves",
                       "Leave one of the two out: with world.shard_group no gather leaves a group.");
  if (layout.offload.parameters.home == runtime::Home::nvme)
    top.findings().add(kAt, "not supported: secondary shards of parameters in files", "Leave one of the two out.");
}

}  // namespace

void check_shard_groups(const Reader& top, const Scenario& scenario) {
  check_secondary_groups(top, scenario);
  const runtime::TrainPlan& train = scenario.train;
  const runtime::Layout& layout = train.layout;
  const int asked = layout.parallel.shard_group;
  if (asked == 0) return;
  constexpr const char* kAt = "/world/shard_group";
  if (const int sharing = data_size(scenario); sharing > 0 && sharing % asked != 0)
    top.findings().add(
        kAt, fmt::format("{} ranks share the batch, and groups of {} ranks do not divide them", sharing, asked),
        "Use a divisor of their number, or 0 for one group of all.");
  refuse(
      top,
      {
          {layout.zero.stage == 0, kAt, "ZeRO stage 0 shards nothing that could be in groups", "Use stage 1, 2 or 3."},
          {layout.parallel.expert > 1, "/world/expert",
           "not supported: shard groups where experts are divided among ranks",
           "Use 1, or leave world.shard_group out."},
          {layout.offload.optimizer.home != runtime::Home::device, "/deepspeed/zero_optimization/offload_optimizer",
           "not supported: an offloaded optimizer whose shards are in groups", "Leave one of the two out."},
          {train.definition.compression.on(), "/compression", "not supported: compressed gradients with shard groups",
           "Leave one of the two out."},
          {train.definition.quirks.any(), "/quirks", "not supported: shard groups with quirks",
           "Leave one of the two out."},
          {train.numerics == runtime::Numerics::fast, "/numerics",
           "not supported: shard groups in a run of fast arithmetic", "Use \"exact\" or \"shapes\"."},
          {train.recovery.memory_ladder, "/recovery/memory_ladder",
           "not supported: the memory ladder with shard groups", "Turn one of them off."},
      });
}

}  // namespace seeksim::harness
