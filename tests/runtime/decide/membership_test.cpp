// Worlds that grow and shrink: seats, and whole runs with spares, ranks that come back, notices and quorums.
#include "runtime/decide/membership.h"

#include <gtest/gtest.h>

#include <map>
#include <memory>

#include "kernels/random.h"
#include "runtime/layout/grid.h"
#include "tests/support/simulated_training.h"

namespace seeksim::test {
namespace {

using Ranks = std::vector<int>;

// ---- who sits where ------------------------------------------------------------------------------------------------

ParallelPlan stages(int pipeline) {
  ParallelPlan plan;
  plan.pipeline = pipeline;
  return plan;
}

TEST(NextWorld, WhoWaitsTakesSeatsThatAreFreeAndNoMore) {
  const Seats seats{4, {}};
  EXPECT_EQ(next_world({}, seats, {0, 1, 2, 3}, {4, 5}).roster.members, (Ranks{0, 1, 2, 3}));
  const NextWorld one = next_world({}, seats, {0, 2, 3}, {4, 5});
  EXPECT_EQ(one.roster.members, (Ranks{0, 2, 3, 4}));
  EXPECT_EQ(one.joiners, (Ranks{4}));
  EXPECT_EQ(one.roster.seats.of(4), 1);
  EXPECT_EQ(one.roster.seats.of(5), -1);
  // The rank that comes back finds its seat taken, and gets the next one that is free.
  const NextWorld back = next_world({}, one.roster.seats, {0, 3, 4}, {1});
  EXPECT_EQ(back.roster.members, (Ranks{0, 1, 3, 4}));
  EXPECT_EQ(back.roster.seats.of(1), 2);
}

TEST(NextWorld, ASpareSitsWhereAReplicaLacksSomebody) {
  // Stage 0: 0, 1, 2; stage 1: 3, 4, 5. One of each stage is gone, and two of stage 1.
  const NextWorld next = next_world(stages(2), {6, {}}, {1, 2, 3}, {6});
  EXPECT_EQ(next.roster.members, (Ranks{1, 2, 3, 6}));
  EXPECT_EQ(next.roster.seats.of(6), 4);
  EXPECT_TRUE(next.idle.empty());
}

TEST(NextWorld, WhoIsOfNoUseWaitsOn) {
  const NextWorld next = next_world(stages(2), {4, {}}, {0, 2}, {1});
  EXPECT_EQ(next.roster.members, (Ranks{0, 2})) << "a second stage 0 makes no second replica";
  EXPECT_TRUE(next.joiners.empty());
  EXPECT_EQ(next_world(stages(2), {4, {}}, {0, 2}, {1, 3}).roster.members, (Ranks{0, 1, 2, 3}));
  EXPECT_EQ(next_world(stages(2), {4, {}}, {0, 1, 2}, {}).idle, (Ranks{1}));
  EXPECT_FALSE(next_world(stages(2), {4, {}}, {0, 1}, {}).problem.empty());
}

TEST(HandOver, SurvivesBeingWords) {
  HandOver all;
  all.run.definition = 0x8000000000000001ull;
  all.run.step = 7;
  all.run.skips.last_scale = -0.5;
  all.run.scaler.scale = 65536;
  all.run.scaler.hysteresis = 2;
  all.run.dropped_batches = {3, 9};
  all.world = {{0, 2, 5}, {4, {{5, 1}}}};
  all.joiners = {5};
  all.load_most = 6;
  all.shards = {{0, 1, 2, 3}, {4, {}}};
  all.window = {{5.25, 1.5}, {5.125, 0.1}};
  all.left_out = {4};
  all.leaves_out_more = 2;
  EXPECT_EQ(hand_over_from(to_words(all)), all);
}

// ---- whole runs ----------------------------------------------------------------------------------------------------

TrainPlan quick_plan(int stage, std::int64_t steps = 4) {
  TrainPlan plan = tiny_plan();
  plan.definition.steps = steps;
  plan.definition.precision.compute = ElementType::f32;
  plan.definition.scheduler.type = "WarmupLR";  // so that the rate shows a lost count
  plan.definition.scheduler.warmup_num_steps = 20;
  plan.layout.micro_batch = 1;
  plan.recovery.watchdog_ns = 10 * kSecond;
  plan.recovery.agree_ns = kSecond;
  plan.layout.zero = zero_plan(stage);
  plan.layout.zero.reduce_bucket_elements = 700;
  plan.layout.zero.persistence_threshold_elements = 20;
  return plan;
}

sim::WorldPlan world_with_spares(int ranks, int spares) {
  sim::WorldPlan world = world_of(ranks);
  world.network = "tcp";
  world.nodes = ranks;
  world.ranks_per_node = 1;
  world.spares = spares;
  return world;
}

void expect_golden(const Simulated& run, const Trained& golden, const Ranks& finished) {
  std::string all = run.world.wait_for_graph;
  for (std::size_t rank = 0; rank < run.outcomes.size(); ++rank) {
    const std::string why = run.outcomes[rank] ? run.outcomes[rank]->why : run.world.ranks[rank].what;
    all += "\nrank " + std::to_string(rank) + ": " + why;
  }
  ASSERT_EQ(run.world.end, sim::WorldEnd::finished) << all;
  ASSERT_EQ(run.finished(), finished) << all;
  for (const int rank : finished) ASSERT_EQ(run.outcomes[std::size_t(rank)]->state, golden.outcome.state) << rank;
}

class Membership : public testing::TestWithParam<int> {};

TEST_P(Membership, ASpareTakesTheLostRanksPlaceAndTheOtherWaitsToTheEnd) {
  TrainPlan plan = quick_plan(GetParam());
  const Trained golden = run_alone(plan);
  plan.recovery.spares = 2;
  const sim::WorldPlan world = world_with_spares(6, 2);
  const Simulated quiet = run_simulated(plan, world);
  expect_golden(quiet, golden, {0, 1, 2, 3});
  for (const std::size_t spare : {4u, 5u}) EXPECT_EQ(quiet.outcomes[spare]->ending, Ending::spare);
  for (int part = 1; part < 8; ++part) {  // before the first commit too
    const Simulated run =
        run_simulated(plan, world, [&](sim::World& w) { w.kill_at(2, quiet.world.virtual_ns * part / 8, [] {}); });
    expect_golden(run, golden, {0, 1, 3, 4});
    EXPECT_EQ(run.outcomes[5]->ending, Ending::spare);
    EXPECT_EQ(run.observer.steps.at(0).size(), 4u) << "a step is committed once";
    ASSERT_FALSE(testing::Test::HasFatalFailure()) << "killed at " << part << "/8";
  }
}

TEST_P(Membership, ARankThatReturnsIsTakenInAfterTheNextCommit) {
  TrainPlan plan = quick_plan(GetParam(), 8);
  const Trained golden = run_alone(plan);
  plan.recovery.grow = true;
  const sim::WorldPlan world = world_with_spares(4, 0);
  const TimeNs span = run_simulated(plan, world).world.virtual_ns;
  int came_back = 0;
  for (int part = 1; part < 6; ++part) {
    const Simulated run = run_simulated(plan, world, [&](sim::World& w) {
      w.kill_at(1, span * part / 8, [] {});
      w.revive_at(1, span * part / 8 + kMillisecond);
    });
    ASSERT_EQ(run.world.end, sim::WorldEnd::finished) << run.world.wait_for_graph;
    ASSERT_TRUE(run.outcomes[1]);
    if (run.outcomes[1]->ending == Ending::spare) continue;  // too late
    expect_golden(run, golden, {0, 1, 2, 3});
    ASSERT_FALSE(testing::Test::HasFatalFailure()) << "killed at " << part << "/8";
    ++came_back;
    EXPECT_LT(run.observer.steps.at(1).size(), 16u);
  }
  EXPECT_GE(came_back, 3);
}

TEST_P(Membership, WithoutGrowNobodyIsTakenIn) {
  TrainPlan plan = quick_plan(GetParam(), 8);
  const Trained golden = run_alone(plan);
  const sim::WorldPlan world = world_with_spares(4, 0);
  const Simulated run = run_simulated(plan, world, [&](sim::World& w) {
    w.kill_at(1, kMillisecond, [] {});
    w.revive_at(1, 2 * kMillisecond);
  });
  expect_golden(run, golden, {0, 2, 3});
  EXPECT_EQ(run.outcomes[1]->ending, Ending::spare);
}

// Tells one rank that it will be gone.
class Noticed final : public ControlPlane {
 public:
  Noticed(ControlPlane& inner, Clock& clock, TimeNs from) : inner_(inner), clock_(clock), from_(from) {}
  std::uint32_t epoch() const override { return inner_.epoch(); }
  std::vector<int> members() const override { return inner_.members(); }
  void revoke(std::uint32_t epoch, const Op& op, ErrorKind why) override { inner_.revoke(epoch, op, why); }
  bool revoked(std::uint32_t epoch) const override { return inner_.revoked(epoch); }
  Agreement agree(const Op& op, std::uint32_t epoch, const Ballot& ballot, TimeNs deadline) override {
    return inner_.agree(op, epoch, ballot, deadline);
  }
  void enter_epoch(std::uint32_t epoch, std::span<const int> members) override { inner_.enter_epoch(epoch, members); }
  TakenIn join(const Op& op, TimeNs deadline) override { return inner_.join(op, deadline); }
  TimeNs notice() override { return clock_.now() >= from_ ? from_ + 120 * kSecond : kForever; }

 private:
  ControlPlane& inner_;
  Clock& clock_;
  TimeNs from_;
};

TEST_P(Membership, WhoIsToldToLeaveGivesItsShardsAwayAndNothingIsLost) {
  TrainPlan plan = quick_plan(GetParam());
  const Trained golden = run_alone(plan);
  plan.recovery.peer_copies = 0;
  const sim::WorldPlan world = world_with_spares(4, 0);
  const TimeNs span = run_simulated(plan, world).world.virtual_ns;
  std::map<int, std::unique_ptr<Noticed>> noticed;
  const Simulated run = run_simulated(plan, world, [&](sim::World& w) {
    w.decorate([&](int rank, Seams inner) -> Seams {
      if (rank != 1) return inner;
      noticed[rank] = std::make_unique<Noticed>(inner.control, inner.clock, span / 3);
      return {inner.clock, inner.device, inner.transport, inner.storage, *noticed[rank]};
    });
  });
  expect_golden(run, golden, {0, 2, 3});
  EXPECT_EQ(run.outcomes[1]->ending, Ending::evicted);
  EXPECT_EQ(run.outcomes[1]->why, "it was asked to leave, and the others hold all of its state");
  EXPECT_TRUE(run.observer.recovering_records.empty());
}

// An owner and the keeper of its copy are gone: all load a checkpoint, and so does the spare, which never was a member.
TEST_P(Membership, ASpareLoadsACheckpointWithTheOthersWhereAShardIsLost) {
  TrainPlan plan = quick_plan(GetParam());
  const Trained golden = run_alone(plan);
  plan.recovery.spares = 1;
  plan.checkpoint.path = "checkpoints";
  plan.checkpoint.every_steps = 1;
  plan.checkpoint.async = false;
  sim::WorldPlan world = world_with_spares(5, 1);
  world.storage.shared_path = plan.checkpoint.path;
  const TimeNs span = run_simulated(plan, world).world.virtual_ns;
  const Simulated run = run_simulated(plan, world, [&](sim::World& w) {
    for (const int rank : {0, 2}) w.kill_at(rank, span * 3 / 4, [] {});
  });
  expect_golden(run, golden, {1, 3, 4});
}

// The loss of step 5 is compared with the five before it; the spare has made only the last of these.
TEST_P(Membership, WhoJoinsKnowsTheStepsThatTheNextOneIsHeldAgainst) {
  TrainPlan plan = quick_plan(GetParam(), 8);
  plan.recovery.spares = 1;
  plan.recovery.divergence.on = true;
  plan.recovery.divergence.window_steps = 5;
  plan.recovery.divergence.factor = 0.1;  // any loss is more than that
  plan.recovery.divergence.rollback_steps = 0;
  const sim::WorldPlan world = world_with_spares(5, 1);
  const TimeNs span = run_simulated(plan, world).world.virtual_ns;
  const Simulated run = run_simulated(plan, world, [&](sim::World& w) { w.kill_at(1, span / 2, [] {}); });
  ASSERT_FALSE(run.observer.joins.empty());
  for (const std::size_t rank : {0u, 2u, 3u, 4u}) {
    ASSERT_TRUE(run.outcomes[rank]);
    EXPECT_EQ(run.outcomes[rank]->ending, Ending::stopped);
    EXPECT_NE(run.outcomes[rank]->why.find("diverged"), std::string::npos) << rank << ": " << run.outcomes[rank]->why;
    EXPECT_EQ(run.outcomes[rank]->steps_committed, 5);
  }
}

TEST_P(Membership, FewerThanTheLeastAreAStopThatSaysSo) {
  TrainPlan plan = quick_plan(GetParam());
  plan.recovery.ranks_min = 4;
  const Simulated run =
      run_simulated(plan, world_with_spares(4, 0), [&](sim::World& w) { w.kill_at(3, 2 * kMillisecond, [] {}); });
  for (const std::size_t rank : {0u, 1u, 2u}) {
    EXPECT_EQ(run.outcomes[rank]->ending, Ending::stopped);
    EXPECT_NE(run.outcomes[rank]->why.find("3 members are left, and the run needs 4"), std::string::npos)
        << run.outcomes[rank]->why;
  }
}

TEST_P(Membership, StagesAndWaysGrowAndShrinkToo) {
  for (const auto& [pipeline, tensor] : {std::pair{2, 1}, std::pair{1, 2}}) {
    TrainPlan plan = quick_plan(GetParam(), 6);
    plan.definition.model.layers = 2;
    plan.definition.model.heads = 8;
    const Trained golden = run_alone(plan);
    plan.layout.parallel.pipeline = pipeline;
    plan.layout.parallel.tensor = tensor;
    plan.recovery.spares = 1;
    const sim::WorldPlan world = world_with_spares(5, 1);
    const TimeNs span = run_simulated(plan, world).world.virtual_ns;
    for (const int part : {1, 3}) {
      const Simulated run = run_simulated(plan, world, [&](sim::World& w) { w.kill_at(1, span * part / 6, [] {}); });
      expect_golden(run, golden, {0, 2, 3, 4});
      ASSERT_FALSE(testing::Test::HasFatalFailure())
          << pipeline << " stages, " << tensor << " ways, at " << part << "/6";
    }
  }
}

TEST_P(Membership, WhoIsLeftOverWaitsAndIsOfUseAgain) {
  TrainPlan plan = quick_plan(GetParam(), 8);
  plan.definition.model.layers = 2;
  const Trained golden = run_alone(plan);
  plan.layout.parallel.pipeline = 2;
  plan.recovery.grow = true;
  const sim::WorldPlan world = world_with_spares(4, 0);
  const TimeNs span = run_simulated(plan, world).world.virtual_ns;
  const Simulated run = run_simulated(plan, world, [&](sim::World& w) {
    w.kill_at(1, span / 4, [] {});
    w.revive_at(1, span / 4 + kMillisecond);
  });
  expect_golden(run, golden, {0, 1, 2, 3});
}

// Processes die at random instants, recoveries and joining included, and some come back.
void expect_golden_or_clear_stops(int stage, std::uint64_t seeds, int& finished, int& joined) {
  TrainPlan plan = quick_plan(stage, 5);
  const Trained golden = run_alone(plan);
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    std::uint32_t drawn = 0;
    const auto below = [&](std::uint32_t n) { return int(kernels::philox({drawn++, 0, 0, 0}, seed)[0] % n); };
    const int ranks = 3 + below(3), spares = below(3);
    plan.recovery.spares = spares;
    plan.recovery.grow = spares == 0 || below(2) == 0;
    plan.recovery.peer_copies = 1 + below(2);
    sim::WorldPlan world = world_with_spares(ranks + spares, spares);
    world.seed = seed;
    world.native_collectives = below(2) == 0;
    if (below(2) == 0) world.network = "ib";
    const int kills = 1 + below(3);
    const Simulated run = run_simulated(plan, world, [&](sim::World& w) {
      for (int k = 0; k < kills; ++k) {
        const int rank = below(std::uint32_t(ranks + spares));
        const TimeNs when = below(3) == 0 ? TimeNs(below(12'000)) * kMillisecond : TimeNs(below(8'000)) * kMicrosecond;
        w.kill_at(rank, when, [] {});
        const TimeNs after = below(2) == 0 ? TimeNs(below(11'000)) * kMillisecond : TimeNs(below(4'000)) * kMicrosecond;
        if (below(2) == 0) w.revive_at(rank, when + after + 1);
      }
    });
    std::string all = "stage " + std::to_string(stage) + ", seed " + std::to_string(seed) + run.world.wait_for_graph;
    for (std::size_t rank = 0; rank < run.outcomes.size(); ++rank) {
      const std::string why = run.outcomes[rank] ? run.outcomes[rank]->why : "died " + run.world.ranks[rank].what;
      all += "\nrank " + std::to_string(rank) + ": " + why;
    }
    ASSERT_EQ(run.world.end, sim::WorldEnd::finished) << all;
    for (const auto& outcome : run.outcomes) {
      if (!outcome) continue;
      ASSERT_NE(outcome->ending, Ending::evicted) << all;
      const bool stopped = outcome->ending == Ending::stopped, golden_bits = outcome->state == golden.outcome.state;
      ASSERT_TRUE(!stopped || outcome->why.find("gone too") != std::string::npos) << all;
      ASSERT_TRUE(outcome->ending != Ending::finished || golden_bits) << all;
    }
    finished += run.finished().empty() ? 0 : 1;
    joined += run.observer.joins.empty() ? 0 : 1;
  }
}

TEST_P(Membership, KillsAndReturnsAtRandomInstantsLeaveTheGoldensBitsOrAClearStop) {
  int finished = 0, joined = 0;
  expect_golden_or_clear_stops(GetParam(), 8, finished, joined);
  EXPECT_GE(finished, 4);
  EXPECT_GE(joined, 2);
}

TEST(MembershipNightly, KillsAndReturnsAtRandomInstantsInFull) {
  for (int stage = 0; stage <= 3; ++stage) {
    int finished = 0, joined = 0;
    expect_golden_or_clear_stops(stage, 1000, finished, joined);
    if (testing::Test::HasFatalFailure()) return;
    EXPECT_GE(finished, 750);
    EXPECT_GE(joined, 250);
  }
}

// Stage 0: 0 to 3, stage 1: 4 to 7, each with the copy of the one two places away. Two of stage 0 die, and 5: rank 7 is
// left over, and no other rank has its shard or the copy of 5's.
TEST_P(Membership, WhoIsLeftOverGivesItsShardsAwayFirst) {
  TrainPlan plan = quick_plan(GetParam(), 6);
  plan.definition.model.layers = 2;
  const Trained golden = run_alone(plan);
  plan.layout.parallel.pipeline = 2;
  const sim::WorldPlan world = world_with_spares(8, 0);
  const TimeNs span = run_simulated(plan, world).world.virtual_ns;
  const Simulated run = run_simulated(plan, world, [&](sim::World& w) {
    for (const int rank : {0, 1, 5}) w.kill_at(rank, span / 2, [] {});
  });
  expect_golden(run, golden, {2, 3, 4, 6});
  EXPECT_EQ(run.outcomes[7]->ending, Ending::evicted);
  EXPECT_NE(run.outcomes[7]->why.find("2 whole replica(s) of the model without this rank"), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(Stages, Membership, testing::Values(0, 1, 2, 3));

}  // namespace
}  // namespace seeksim::test
