// What operations are called: by these words logs, names of wrong operations and timelines say where a value came from.
#include <set>

#include "sim/value_log.h"
#include "tests/support/simulated_training.h"

namespace seeksim::test {
namespace {

// Of rank 0, every operation that read or wrote a value.
std::vector<sim::ValueEntry> operations_of(const TrainPlan& plan) {
  sim::WorldPlan world_plan = world_of(1);
  world_plan.values.on = true;
  world_plan.values.first_step = -100;  // what is outside of steps, too
  world_plan.storage.shared_path = "run";
  sim::World world(world_plan);
  KeepingObserver observer;
  world.run([&](Rank& rank) { EXPECT_EQ(train(rank, plan, observer).ending, Ending::finished); });
  return world.values(0)->entries();
}

TEST(Labels, OfRecomputedLayersSayWhichAndCopiesSayInWhichStep) {
  TrainPlan plan = tiny_plan();
  plan.definition.model.layers = 4;
  plan.layout.checkpointing.every = 2;
  plan.layout.checkpointing.on_host = true;
  int copied = 0;
  std::set<int> recomputed;
  for (const sim::ValueEntry& entry : operations_of(plan)) {
    if (entry.op.phase == Phase::recompute) {
      recomputed.insert(entry.op.layer);
    }
    if (entry.op.kind == OpKind::copy && std::string_view(entry.op.tensor) == "checkpoint") {
      EXPECT_GE(entry.op.step, 0);
      ++copied;
    }
  }
  std::set<int> layers;
  for (int l = 0; l < plan.definition.model.layers; ++l) layers.insert(l);
  EXPECT_EQ(recomputed, layers);
  EXPECT_GT(copied, 0);
}

TEST(Labels, SayWhereInTheSourceAndInWhichStep) {
  TrainPlan plan = tiny_plan();
  plan.checkpoint.path = "run/checkpoints";
  plan.checkpoint.every_steps = 1;
  plan.layout.zero.stage = 3;
  plan.layout.offload.optimizer.home = plan.layout.offload.parameters.home = Home::nvme;
  int written = 0;
  for (const sim::ValueEntry& entry : operations_of(plan)) {
    EXPECT_STRNE(entry.op.site, "") << entry.op.tensor << " of " << entry.buffer;
    EXPECT_GE(entry.op.step, -1) << entry.op.tensor;
    EXPECT_LE(entry.op.step, plan.definition.steps) << entry.op.tensor;
    written += entry.op.kind == OpKind::storage_write;
  }
  EXPECT_GT(written, 0);
}

}  // namespace
}  // namespace seeksim::test
