// Schedules as data: each strategy is its seed, and any run is `first` with what it decided otherwise.
#include <set>

#include "sim/schedule.h"
#include "tests/sim/sim_test.h"

namespace seeksim::sim {
namespace {

constexpr Strategy kNumbered[] = {Strategy::first, Strategy::random, Strategy::pct, Strategy::swarm};

// Six ranks that compute and pass on what they have, round a ring.
WorldResult ring(const Schedule& schedule, std::uint64_t seed) {
  WorldPlan plan = small_world(6, seed);
  plan.noise = 0;  // so that many can run at one instant
  plan.schedule = schedule;
  World world(plan);
  WorldResult result = world.run([&](Rank& rank) {
    const Comm comm = make_comm(rank);
    BufferPtr b = floats(rank, 2, float(rank.id));
    for (std::uint64_t i = 1; i <= 10; ++i) {
      rank.device.compute_queue().launch(
          op_of(rank, OpKind::compute, i), {1e6, 0}, [](kernels::Lane, kernels::Vec<float> v) { v[0] += 1; },
          vec<float>(*b));
      rank.device.communication_queue().wait(rank.device.compute_queue().record());
      const Op op = op_of(rank, OpKind::all_gather, i);
      rank.wait(
          exchange(rank, comm, op, {send_to((rank.id + 1) % 6, b, 0, 1), receive_from((rank.id + 5) % 6, b, 1, 1)}), op,
          kSecond, comm);
    }
    rank.recorder.mix(op_of(rank, OpKind::compute, 0), word(b, 1));
  });
  EXPECT_TRUE(all_returned(result));
  return result;
}

Schedule by(Strategy strategy) {
  Schedule schedule;
  schedule.strategy = strategy;
  schedule.horizon = 500;
  return schedule;
}

TEST(Choices, TheSameSeedGivesTheSameRun) {
  for (const Strategy strategy : kNumbered) {
    const WorldResult a = ring(by(strategy), 7), b = ring(by(strategy), 7);
    EXPECT_EQ(a.fingerprint, b.fingerprint) << name(strategy);
    EXPECT_EQ(a.choices, b.choices) << name(strategy);
    EXPECT_GT(a.decisions, 100u) << name(strategy);
  }
}

TEST(Choices, AnotherSeedGivesAnotherOrderUnlessNothingIsDrawn) {
  for (const Strategy strategy : {Strategy::random, Strategy::pct, Strategy::swarm}) {
    std::set<std::uint64_t> runs;
    for (std::uint64_t seed = 1; seed <= 5; ++seed) runs.insert(ring(by(strategy), seed).fingerprint);
    EXPECT_EQ(runs.size(), 5u) << name(strategy);
  }
  EXPECT_EQ(ring(by(Strategy::first), 1).choices, std::vector<Deviation>());
  EXPECT_EQ(ring(by(Strategy::first), 1).fingerprint, ring(by(Strategy::first), 2).fingerprint);
}

TEST(Choices, EachRunIsTheFirstWithWhatItDecidedOtherwise) {
  for (const Strategy strategy : kNumbered) {
    const WorldResult run = ring(by(strategy), 11);
    Schedule written = by(Strategy::first);
    written.deviations = run.choices;
    const WorldResult again = ring(written, 99);  // the seed has nothing left to say
    EXPECT_EQ(again.fingerprint, run.fingerprint) << name(strategy);
    EXPECT_EQ(again.choices, run.choices) << name(strategy);
  }
}

TEST(Choices, OneDeviationIsOneOtherDecision) {
  Schedule schedule = by(Strategy::first);
  schedule.deviations = {{5, 1}};
  const WorldResult other = ring(schedule, 1);
  EXPECT_EQ(other.choices, schedule.deviations);
  EXPECT_NE(other.fingerprint, ring(by(Strategy::first), 1).fingerprint);
}

TEST(Choices, ChangesOfPriorityMakeOtherOrders) {
  std::set<std::uint64_t> runs;
  for (std::uint32_t changes = 0; changes < 6; ++changes) {
    Schedule schedule = by(Strategy::pct);
    schedule.changes = changes;
    runs.insert(ring(schedule, 3).fingerprint);
  }
  EXPECT_GE(runs.size(), 3u);
}

TEST(Choices, ASlowQueueTakesItsTime) {
  const TimeNs calm = ring({}, 1).virtual_ns;
  for (const SlowQueue::Which queue : {SlowQueue::Which::compute, SlowQueue::Which::communication}) {
    Schedule schedule;
    schedule.slow = {{2, queue, 6}};
    EXPECT_GT(ring(schedule, 1).virtual_ns, calm * 5 / 4) << name(queue);
  }
  Schedule schedule;
  schedule.slow = {{2, SlowQueue::Which::storage, 6}};  // no rank reads a file
  EXPECT_EQ(ring(schedule, 1).virtual_ns, calm);
}

TEST(Choices, NamesReadBack) {
  for (int i = 0; i < int(Strategy::count_); ++i) EXPECT_EQ(strategy(name(Strategy(i))), Strategy(i));
  for (int i = 0; i < int(SlowQueue::Which::count_); ++i)
    EXPECT_EQ(slow_queue(name(SlowQueue::Which(i))), SlowQueue::Which(i));
  EXPECT_EQ(strategy("luck"), Strategy::count_);
}

}  // namespace
}  // namespace seeksim::sim
