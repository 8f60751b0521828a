// Sharded state and its loss: kills at random instants of every stage end in the golden's bits, or, where an owner and
// the keeper of its copy are both gone, in a stop that says so on every survivor.
#include <gtest/gtest.h>

#include "kernels/random.h"
#include "tests/support/simulated_training.h"

namespace seeksim::test {
namespace {

std::uint32_t draw(std::uint64_t seed, std::uint32_t what) { return kernels::philox({what, 0, 0, 0}, seed)[0]; }

TrainPlan quick_plan(int stage) {
  TrainPlan plan = tiny_plan();
  plan.definition.model.layers = 1;
  plan.definition.steps = 4;
  plan.layout.micro_batch = 1;
  plan.recovery.watchdog_ns = 10 * kSecond;
  plan.recovery.agree_ns = kSecond;
  plan.layout.zero = zero_plan(stage);
  plan.layout.zero.reduce_bucket_elements = 700;
  plan.layout.zero.persistence_threshold_elements = 20;
  plan.layout.zero.max_reuse_distance = 0;
  return plan;
}

struct Count {
  int recovered = 0;
  int stopped = 0;
};

// kills: of different ranks, each at a random instant before `span`.
void expect_golden_or_clear_stop(const TrainPlan& plan, const Trained& golden, const sim::WorldPlan& world, TimeNs span,
                                 int kills, Count& count) {
  std::vector<bool> killed(std::size_t(world.ranks()), false);
  const Simulated run = run_simulated(plan, world, [&](sim::World& w) {
    for (int k = 0; k < kills; ++k) {
      const int rank = int(draw(world.seed, std::uint32_t(2 * k)) % std::uint32_t(world.ranks()));
      const TimeNs when = TimeNs(draw(world.seed, std::uint32_t(2 * k + 1))) % span;
      w.kill_at(rank, when, [&killed, rank] { killed[std::size_t(rank)] = true; });
    }
  });
  const std::string where = "stage " + std::to_string(plan.layout.zero.stage) + ", seed " + std::to_string(world.seed) +
                            ", " + std::to_string(world.ranks()) + " ranks, " + world.network;
  ASSERT_EQ(run.world.end, sim::WorldEnd::finished) << where << "\n" << run.world.wait_for_graph;
  const TrainOutcome* first = nullptr;
  for (int r = 0; r < world.ranks(); ++r) {
    if (killed[std::size_t(r)]) continue;
    ASSERT_TRUE(run.outcomes[std::size_t(r)]) << where << " rank " << r << ": " << run.world.ranks[std::size_t(r)].what;
    const TrainOutcome& outcome = *run.outcomes[std::size_t(r)];
    if (first == nullptr) first = &outcome;
    ASSERT_EQ(outcome.ending, first->ending) << where << " rank " << r << ": " << outcome.why;
    ASSERT_EQ(outcome.steps_committed, first->steps_committed) << where;
    if (outcome.ending == Ending::stopped) {
      ASSERT_GE(std::count(killed.begin(), killed.end(), true), 2) << where << ": " << outcome.why;
      ASSERT_NE(outcome.why.find("which kept its copy, is gone too"), std::string::npos) << where << outcome.why;
      continue;
    }
    ASSERT_EQ(outcome.ending, Ending::finished) << where << " rank " << r << ": " << outcome.why;
    ASSERT_EQ(outcome.state, golden.outcome.state) << where << " rank " << r;
    ASSERT_EQ(run.observer.steps.at(r).size(), golden.observer.steps.at(0).size())
        << where << ": a step is committed once";
  }
  count.recovered += !run.observer.recovered_records.empty();
  count.stopped += first != nullptr && first->ending == Ending::stopped;
}

class ZeroRecovery : public testing::TestWithParam<int> {};

TEST_P(ZeroRecovery, KillsAtRandomInstantsLeaveTheGoldensBitsOrAClearStop) {
  const TrainPlan plan = quick_plan(GetParam());
  const Trained golden = run_alone(plan);
  const TimeNs span = run_simulated(plan, world_of(4)).world.virtual_ns;
  Count one, more;
  for (std::uint64_t seed = 1; seed <= 400; ++seed) {
    sim::WorldPlan world = world_of(2 + int(seed % 4), true, seed);
    world.network = seed % 2 ? "ib" : "tcp";
    const int kills = 1 + int(seed / 4 % 3);
    expect_golden_or_clear_stop(plan, golden, world, span, kills, kills == 1 ? one : more);
    if (testing::Test::HasFatalFailure()) return;
  }
  EXPECT_GT(one.recovered, 60);
  EXPECT_EQ(one.stopped, 0);
  EXPECT_GT(more.recovered, 60);
  EXPECT_GT(more.stopped, 5) << "neighbours must have died together now and then, else the stop was not tested";
}

TEST_P(ZeroRecovery, KillsDuringARecoveryAreSurvivedOrStopped) {
  const TrainPlan plan = quick_plan(GetParam());
  const Trained golden = run_alone(plan);
  int finished = 0;
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    std::vector<bool> killed(5, false);
    const Simulated run = run_simulated(plan, world_of(5, true, seed), [&](sim::World& w) {
      const int first = int(draw(seed, 0) % 5), second = int((std::uint32_t(first) + 1 + draw(seed, 1) % 4) % 5);
      w.kill_at(first, 700 * kMicrosecond, [&killed, first] { killed[std::size_t(first)] = true; });
      const TimeNs when = 10 * kSecond + TimeNs(draw(seed, 2)) % (2 * kSecond);
      w.kill_at(second, when, [&killed, second] { killed[std::size_t(second)] = true; });
    });
    ASSERT_EQ(run.world.end, sim::WorldEnd::finished) << "seed " << seed << "\n" << run.world.wait_for_graph;
    for (std::size_t r = 0; r < 5; ++r) {
      if (killed[r]) continue;
      ASSERT_TRUE(run.outcomes[r]) << "seed " << seed << " rank " << r << run.world.ranks[r].what;
      if (run.outcomes[r]->ending == Ending::stopped) {
        ASSERT_NE(run.outcomes[r]->why.find("is gone too"), std::string::npos) << run.outcomes[r]->why;
        continue;
      }
      ASSERT_EQ(run.outcomes[r]->ending, Ending::finished) << "seed " << seed << ": " << run.outcomes[r]->why;
      ASSERT_EQ(run.outcomes[r]->state, golden.outcome.state) << "seed " << seed << " rank " << r;
      ++finished;
    }
  }
  EXPECT_GT(finished, 300);
}

TEST_P(ZeroRecovery, WithoutCopiesALostOwnerEndsInAStopThatSaysSo) {
  TrainPlan plan = quick_plan(GetParam());
  plan.recovery.peer_copies = 0;
  const TimeNs span = run_simulated(plan, world_of(4)).world.virtual_ns;
  const Simulated run = run_simulated(plan, world_of(4), [&](sim::World& w) { w.kill_at(2, span * 3 / 4, [] {}); });
  for (const std::size_t r : {0U, 1U, 3U}) {
    ASSERT_TRUE(run.outcomes[r]);
    EXPECT_EQ(run.outcomes[r]->ending, Ending::stopped);
    EXPECT_EQ(run.outcomes[r]->why, "rank 2 is gone, and with it its shard of the state; no copy of it is kept");
  }
}

TEST_P(ZeroRecovery, BeforeTheFirstCommitNothingIsLost) {
  TrainPlan plan = quick_plan(GetParam());
  plan.recovery.peer_copies = 0;
  const Trained golden = run_alone(plan);
  const Simulated run = run_simulated(plan, world_of(4), [&](sim::World& w) { w.kill_at(2, 1000, [] {}); });
  EXPECT_EQ(run.finished(), (std::vector<int>{0, 1, 3}));
  for (const int r : run.finished()) EXPECT_EQ(run.outcomes[std::size_t(r)]->state, golden.outcome.state);
}

INSTANTIATE_TEST_SUITE_P(Stages, ZeroRecovery, testing::Values(1, 2, 3));

}  // namespace
}  // namespace seeksim::test
