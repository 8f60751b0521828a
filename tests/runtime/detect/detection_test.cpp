// The rules by themselves: scores of stragglers, divergence, what the recorder keeps, and a process that stops for a
// while.
#include <gtest/gtest.h>

#include <cmath>

#include "runtime/detect/divergence.h"
#include "runtime/detect/straggler.h"
#include "runtime/seams/recorder.h"
#include "tests/support/simulated_training.h"

namespace seeksim::test {
namespace {

using runtime::BusyStep;
using runtime::DivergenceMonitor;
using runtime::StragglerMonitor;

// ---- scores --------------------------------------------------------------------------------------------------------

TEST(StragglerScore, IsTheFastestTimeOverTheOwn) {
  const std::vector<BusyStep> steps = {{0, 0, {4, 2}, 100}, {1, 0, {4, 2}, 200}, {2, 0, {4, 2}, 125}};
  const std::vector<double> scores = runtime::straggler_scores(steps);
  EXPECT_EQ(scores, (std::vector<double>{1.0, 0.5, 0.8}));
}

TEST(StragglerScore, WhoHasMoreToDoIsNotSlowForThat) {
  // Twice the samples, twice the time; launches have a price of their own, so that less work takes more than its share.
  const std::vector<BusyStep> steps = {{0, 0, {4, 4}, 200}, {1, 0, {2, 2}, 110}};
  for (const double score : runtime::straggler_scores(steps)) EXPECT_EQ(score, 1.0);
  // But who takes longer than one who has more to do is slow.
  const std::vector<BusyStep> slow = {{0, 0, {4, 4}, 200}, {1, 0, {2, 2}, 400}};
  EXPECT_EQ(runtime::straggler_scores(slow)[1], 0.5);
}

TEST(StragglerScore, OnlyTheSamePartOfTheModelIsComparedAndTheIdleSetNoExample) {
  const std::vector<BusyStep> steps = {{0, 0, {4, 2}, 100}, {1, 1, {4, 2}, 500}, {2, 0, {0, 0}, 1}, {3, 0, {4, 2}, 0}};
  for (const double score : runtime::straggler_scores(steps)) EXPECT_EQ(score, 1.0);
}

TEST(StragglerScore, CountsStepsInARowAndSpeaksOnce) {
  runtime::StragglerPlan plan;
  plan.on = true;
  plan.steps = 3;
  StragglerMonitor monitor(plan);
  const auto look = [&](TimeNs slow) {
    return monitor.look(std::vector<BusyStep>{{0, 0, {1, 1}, 100}, {5, 0, {1, 1}, slow}});
  };
  EXPECT_TRUE(look(200).empty());
  EXPECT_TRUE(look(200).empty());
  EXPECT_TRUE(look(100).empty());  // not in a row
  EXPECT_TRUE(look(200).empty());
  EXPECT_TRUE(look(200).empty());
  const std::vector<runtime::Straggler> found = look(200);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].rank, 5);
  EXPECT_EQ(found[0].steps, 3);
  EXPECT_TRUE(look(200).empty());
}

TEST(StragglerScore, ARankWithoutPeersIsHeldAgainstItsOwnBest) {
  runtime::StragglerPlan plan;
  plan.on = true;
  plan.steps = 1;
  StragglerMonitor monitor(plan);
  EXPECT_TRUE(monitor.look(std::vector<BusyStep>{{0, 0, {1, 1}, 100}}).empty());
  EXPECT_EQ(monitor.look(std::vector<BusyStep>{{0, 0, {1, 1}, 300}}).size(), 1u);
  monitor.begin_world();
  EXPECT_TRUE(monitor.look(std::vector<BusyStep>{{0, 0, {1, 1}, 300}}).empty());
}

// ---- divergence ----------------------------------------------------------------------------------------------------

TEST(Divergence, JudgesNothingBeforeTheWindowIsFull) {
  runtime::DivergencePlan plan;
  plan.window_steps = 3;
  DivergenceMonitor monitor(plan);
  EXPECT_FALSE(monitor.look(0, 1, 1));
  EXPECT_FALSE(monitor.look(1, 100, 1));
  EXPECT_FALSE(monitor.look(2, 1, 1));
  EXPECT_FALSE(monitor.look(3, 100, 1));  // the mean is 34
}

TEST(Divergence, NamesStepValueAndMeanOfLossOrNorm) {
  runtime::DivergencePlan plan;
  plan.window_steps = 2;
  plan.factor = 5;
  DivergenceMonitor loss(plan), norm(plan), nan(plan);
  for (DivergenceMonitor* one : {&loss, &norm, &nan}) {
    EXPECT_FALSE(one->look(0, 2, 1));
    EXPECT_FALSE(one->look(1, 4, 1));
  }
  const auto leap = loss.look(2, 15.5, 1);
  ASSERT_TRUE(leap);
  EXPECT_EQ(text(*leap, plan), "the loss of step 2 is 15.5, more than 5 times the mean of the 2 steps before it (3)");
  const auto jump = norm.look(2, 3, 5.5);
  ASSERT_TRUE(jump);
  EXPECT_STREQ(jump->what, "gradient norm");
  EXPECT_TRUE(nan.look(2, std::nan(""), 1));
  // The step that was found stays out of the window.
  EXPECT_FALSE(loss.look(2, 3, 1));
  EXPECT_TRUE(loss.look(3, 18, 1));
}

// ---- the recorder --------------------------------------------------------------------------------------------------

TEST(Recorder, ATimeoutStaysOneWhenTheAbortEndsTheOperation) {
  runtime::Recorder recorder;
  Op op;
  op.kind = OpKind::all_reduce;
  op.sequence = 7;
  const std::uint64_t number = recorder.enqueued(op, 10, 3, {runtime::ElementType::f32, 16, 1, 0, 2, 64});
  recorder.started(number, 20);
  recorder.timed_out(op);
  recorder.ended(number, 90, runtime::RecordState::aborted, 6);
  const runtime::Record record = recorder.records().back();
  EXPECT_EQ(record.state, runtime::RecordState::timed_out);
  EXPECT_EQ(record.ended_ns, 90);
  EXPECT_EQ(record.result, 6);
  EXPECT_EQ(record.comm, 3u);
  EXPECT_EQ(record.payload.count, 16u);
  EXPECT_EQ(record.payload.to_offset, 64u);
}

TEST(Recorder, GivesTheLastRecordsOfAFullRingInOrder) {
  runtime::Recorder recorder;
  recorder.limit(4);
  Op op;
  for (int i = 1; i <= 10; ++i) {
    op.sequence = std::uint64_t(i);
    recorder.enqueued(op, i);
  }
  const auto last = recorder.records(2), all = recorder.records();
  ASSERT_EQ(last.size(), 2u);
  EXPECT_EQ(last[0].op.sequence, 9u);
  EXPECT_EQ(last[1].op.sequence, 10u);
  ASSERT_EQ(all.size(), 4u);
  EXPECT_EQ(all[0].op.sequence, 7u);
}

// ---- heartbeats ----------------------------------------------------------------------------------------------------

struct Stop {
  std::optional<ErrorKind> sleeper;  // what the process that stopped gets to hear
  std::optional<runtime::Agreement> others;
};

// Rank 1 of three stops for a while; the others vote in the meantime.
Stop stop_for(TimeNs pause) {
  sim::WorldPlan plan = world_of(3);
  plan.heartbeats.every_ns = kSecond;
  plan.heartbeats.timeout_ns = 5 * kSecond;
  Stop stop;
  sim::World world(plan);
  world.run([&](Rank& rank) {
    Op vote;
    vote.kind = OpKind::vote;
    vote.step = 0;
    vote.rank = rank.id;
    const auto agree = [&](OpKind kind) {
      Op op = vote;
      op.kind = kind;
      return rank.control.agree(op, 0, {}, rank.clock.now() + 600 * kSecond);
    };
    try {
      if (rank.id == 1) {
        rank.control.stopped_until(rank.clock.now() + pause);
        rank.clock.sleep_until(rank.clock.now() + pause);
      }
      const runtime::Agreement agreed = agree(OpKind::vote);
      if (rank.id == 0) stop.others = agreed;
    } catch (const SeamError& error) {
      if (rank.id == 1) stop.sleeper = error.kind();
      if (rank.id == 0) {
        EXPECT_EQ(error.kind(), ErrorKind::revoked);
        EXPECT_LT(rank.clock.now(), 6 * kSecond);
      }
      if (rank.id == 1) return;
      const runtime::Agreement agreed = agree(OpKind::agree);
      if (rank.id == 0) stop.others = agreed;
    }
  });
  return stop;
}

TEST(Heartbeat, AShortPauseIsForgiven) {
  const Stop stop = stop_for(3 * kSecond);
  EXPECT_FALSE(stop.sleeper);
  ASSERT_TRUE(stop.others);
  EXPECT_EQ(stop.others->members, (std::vector<int>{0, 1, 2}));
  EXPECT_TRUE(stop.others->silent.empty());
}

TEST(Heartbeat, APauseLongerThanTheTimeoutFencesWhoOnlyPaused) {
  const Stop stop = stop_for(20 * kSecond);
  EXPECT_EQ(stop.sleeper, ErrorKind::fenced);
  ASSERT_TRUE(stop.others);
  EXPECT_EQ(stop.others->members, (std::vector<int>{0, 2}));
  EXPECT_EQ(stop.others->dead, std::vector<int>{1});
  EXPECT_EQ(stop.others->silent, std::vector<int>{1});
}

}  // namespace
}  // namespace seeksim::test
