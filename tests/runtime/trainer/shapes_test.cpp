// A run of shapes is the run itself without values: the same memory by tag, the same messages and the same virtual
// time as the exact run, whose launches it makes one by one (each draws its noise from one stream, so that one more or
// one less moves the time of all that follow).
#include <gtest/gtest.h>

#include "runtime/rules/bug.h"
#include "runtime/rules/bugs.h"
#include "runtime/seams/edges.h"
#include "tests/support/simulated_training.h"

namespace seeksim::test {
namespace {

struct Case {
  int stage;
  ElementType compute, gradients;
  bool overlap;
  int ranks;
  bool native;
};

std::string where(const Case& c) {
  return "stage " + std::to_string(c.stage) + ", " + std::string(name(c.compute)) + " with gradients in " +
         std::string(name(c.gradients)) + (c.overlap ? ", overlap" : ", no overlap") + ", " + std::to_string(c.ranks) +
         " ranks" + (c.native ? ", native" : "");
}

TrainPlan plan_of(const Case& c) {
  TrainPlan plan = tiny_plan(c.ranks % 2 == 1);
  plan.definition.model.layers = 3;
  plan.definition.precision.compute = c.compute;
  plan.definition.precision.gradients = c.gradients;
  plan.layout.micro_batch = 1 + c.ranks % 3;
  plan.layout.zero = zero_plan(c.stage);
  plan.layout.zero.overlap_comm = c.overlap;
  plan.layout.zero.reduce_bucket_elements = 1000;
  plan.layout.zero.allgather_bucket_elements = 3000;
  plan.layout.zero.prefetch_elements = 2000;
  plan.layout.zero.persistence_threshold_elements = 20;
  plan.layout.zero.max_reuse_distance = c.overlap ? 0 : 4000;
  return plan;
}

Simulated run(
    TrainPlan plan, sim::WorldPlan world, bool shapes,
    const std::function<void(sim::World&)>& prepare = [](sim::World&) {}) {
  plan.numerics = shapes ? Numerics::shapes : Numerics::exact;
  world.shapes = shapes;
  return run_simulated(plan, world, prepare);
}

void expect_same(const Simulated& exact, const Simulated& shapes, const std::string& at) {
  ASSERT_EQ(exact.world.end, sim::WorldEnd::finished) << at;
  ASSERT_EQ(shapes.world.end, sim::WorldEnd::finished) << at << "\n" << shapes.world.wait_for_graph;
  EXPECT_EQ(exact.world.memory_peak_by_tag, shapes.world.memory_peak_by_tag) << at;
  EXPECT_EQ(exact.world.memory_peak, shapes.world.memory_peak) << at;
  EXPECT_EQ(exact.world.memory_at_peak, shapes.world.memory_at_peak) << at;
  EXPECT_EQ(exact.world.host_peak_by_tag, shapes.world.host_peak_by_tag) << at;
  EXPECT_EQ(exact.world.virtual_ns, shapes.world.virtual_ns) << at;
  EXPECT_EQ(exact.world.switches, shapes.world.switches) << at;
  EXPECT_EQ(exact.world.overlap.hidden_ns, shapes.world.overlap.hidden_ns) << at;
  EXPECT_EQ(exact.finished(), shapes.finished()) << at;
  for (std::size_t kind = 0; kind < exact.world.comm.size(); ++kind) {
    const std::string what = at + ", " + std::string(name(OpKind(kind)));
    EXPECT_EQ(exact.world.comm[kind].calls, shapes.world.comm[kind].calls) << what;
    EXPECT_EQ(exact.world.comm[kind].bytes_sent_per_rank_max, shapes.world.comm[kind].bytes_sent_per_rank_max) << what;
  }
}

TEST(Shapes, MemoryMessagesAndTimeAreThoseOfTheExactRun) {
  for (const int stage : {0, 1, 2, 3}) {
    for (const bool overlap : {false, true}) {
      for (const auto& [compute, gradients] : {std::pair{ElementType::f32, ElementType::f32},
                                               {ElementType::bf16, ElementType::bf16},
                                               {ElementType::bf16, ElementType::f32}}) {
        for (const int ranks : {1, 2, 3, 8}) {
          const bool native = (stage + ranks + int(compute)) % 2 == 0;
          const Case c{stage, compute, gradients, overlap, ranks, native};
          const TrainPlan plan = plan_of(c);
          expect_same(run(plan, world_of(ranks, native), false), run(plan, world_of(ranks, native), true), where(c));
          if (testing::Test::HasFailure()) return;
        }
      }
    }
  }
}

// The comparison is not of nothing with nothing: another stage, bucket or seed is another run.
TEST(Shapes, TellLayoutsApart) {
  const Case c{2, ElementType::bf16, ElementType::bf16, true, 4, true};
  const TrainPlan plan = plan_of(c);
  const Simulated one = run(plan, world_of(4), true);
  EXPECT_GT(one.world.memory_peak_by_tag[std::size_t(MemoryTag::optimizer)], 0u);
  TrainPlan other = plan;
  other.layout.zero.stage = 1;
  EXPECT_NE(run(other, world_of(4), true).world.memory_peak_by_tag, one.world.memory_peak_by_tag);
  other = plan;
  other.bug.bug = Bug::full_optimizer_state;
  EXPECT_GT(run(other, world_of(4), true).world.memory_peak_by_tag[std::size_t(MemoryTag::optimizer)],
            one.world.memory_peak_by_tag[std::size_t(MemoryTag::optimizer)]);
  EXPECT_NE(run(plan, world_of(4, true, 2), true).world.virtual_ns, one.world.virtual_ns);
}

TEST(Shapes, TellOfNoValues) {
  for (const int stage : {0, 3}) {
    const Case c{stage, ElementType::bf16, ElementType::f32, true, 2, true};
    const Simulated shapes = run(plan_of(c), world_of(2), true);
    for (const auto& outcome : shapes.outcomes) {
      EXPECT_EQ(outcome->state.params, 0u);
      EXPECT_TRUE(outcome->state.by_tensor.empty());
      EXPECT_EQ(outcome->state.optimizer_steps, 3);
    }
    for (const auto& [rank, steps] : shapes.observer.steps) {
      for (const StepRecord& step : steps) EXPECT_FALSE(step.skipped);
    }
  }
}

// A rank that dies takes the same shards with it, and the others go on as in the exact run.
TEST(Shapes, RecoverAsTheExactRunDoes) {
  for (const int stage : {0, 1, 3}) {
    const Case c{stage, ElementType::f32, ElementType::f32, true, 4, stage != 3};
    TrainPlan plan = plan_of(c);
    plan.recovery.watchdog_ns = kSecond;
    const auto kill = [](sim::World& world) { world.kill_at(2, 400 * kMicrosecond, [] {}); };
    const Simulated exact = run(plan, world_of(4, c.native), false, kill),
                    shapes = run(plan, world_of(4, c.native), true, kill);
    expect_same(exact, shapes, where(c));
    EXPECT_EQ(exact.finished().size(), 3u) << where(c);
    EXPECT_EQ(exact.observer.recovered_records.size(), shapes.observer.recovered_records.size()) << where(c);
  }
}

TEST(Shapes, RacesAreSeenWithoutValues) {
  const Case c{3, ElementType::f32, ElementType::f32, true, 2, true};
  TrainPlan plan = plan_of(c);
  plan.numerics = Numerics::shapes;
  plan.bug = {Bug::skip_wait, Edge::parameters_gathered};
  sim::WorldPlan world_plan = world_of(2);
  world_plan.shapes = true;
  sim::World world(world_plan);
  KeepingObserver observer;
  const sim::WorldResult result = world.run([&](Rank& rank) { train(rank, plan, observer); });
  EXPECT_FALSE(result.races.empty());
}

TEST(Shapes, NeedADeviceWithoutValues) {
  TrainPlan plan = tiny_plan();
  plan.numerics = Numerics::shapes;
  sim::World world(world_of(1));
  KeepingObserver observer;
  const sim::WorldResult result = world.run([&](Rank& rank) { train(rank, plan, observer); });
  EXPECT_EQ(result.end, sim::WorldEnd::failed);
  EXPECT_NE(result.ranks[0].what.find("run of shapes"), std::string::npos) << result.ranks[0].what;
}

}  // namespace
}  // namespace seeksim::test
