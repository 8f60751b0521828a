// Rules match what they say and nothing else, fire as often as they say, and draw from streams of their own.
#include <gtest/gtest.h>

#include "faults/trigger.h"
#include "tests/support/manual_seams.h"

namespace seeksim::faults::test {

namespace {

RuleState state_of(const Rule& r, std::uint64_t seed = 1, int twin = 0, std::size_t number = 0) {
  return RuleState(r, number, seed, twin);
}

Rule dropping() { return rule(FaultKind::message_drop); }

bool asks(const Rule& r, const Op& op, TimeNs now = 0) { return state_of(r).asks(op, now); }

Op message(int rank, int peer, std::int64_t step) {
  Op op = reduction(rank, step);
  op.peer = peer;
  return op;
}

// Which of `n` matches of rank `rank` fire.
std::vector<bool> pattern(RuleState state, int n, int rank = 0) {
  std::vector<bool> fires;
  for (int i = 0; i < n; ++i) fires.push_back(state.asks(message(rank, 1, i), 0));
  return fires;
}

}  // namespace

TEST(Trigger, EveryFieldThatIsGivenMustMatch) {
  Op op = message(2, 3, 7);
  op.micro_batch = 1;
  Rule all = dropping();
  all.when.rank = 2;
  all.when.peer = 3;
  all.when.step = 7;
  all.when.micro_batch = 1;
  all.when.op = OpKind::all_reduce;
  all.when.phase = Phase::grad_reduce;
  all.when.at_ns = 50;
  EXPECT_TRUE(asks(all, op, 50));

  const auto no_longer = [&](auto change) {
    Rule one = all;
    change(one.when);
    return !asks(one, op, 50);
  };
  EXPECT_TRUE(no_longer([](Trigger& t) { t.rank = 1; }));
  EXPECT_TRUE(no_longer([](Trigger& t) { t.peer = 1; }));
  EXPECT_TRUE(no_longer([](Trigger& t) { t.step = 6; }));
  EXPECT_TRUE(no_longer([](Trigger& t) { t.micro_batch = 0; }));
  EXPECT_TRUE(no_longer([](Trigger& t) { t.op = OpKind::all_gather; }));
  EXPECT_TRUE(no_longer([](Trigger& t) { t.phase = Phase::commit; }));
  EXPECT_TRUE(no_longer([](Trigger& t) { t.at_ns = 51; }));
  EXPECT_TRUE(no_longer([](Trigger& t) { t.call = 2; }));
}

TEST(Trigger, AnEmptyTriggerMatchesTheFirstOperationThatItsKindCanConcern) {
  EXPECT_TRUE(asks(dropping(), message(0, 1, 0)));
  EXPECT_FALSE(asks(dropping(), of_kind(OpKind::vote, 0, 0)));
  EXPECT_FALSE(asks(dropping(), of_kind(OpKind::compute, 0, 0)));
  EXPECT_TRUE(asks(rule(FaultKind::rank_crash), of_kind(OpKind::vote, 0, 0)));
  EXPECT_TRUE(asks(rule(FaultKind::straggler), of_kind(OpKind::compute, 0, 0)));
  EXPECT_FALSE(asks(rule(FaultKind::straggler), of_kind(OpKind::copy, 0, 0)));
}

TEST(Trigger, RecoveryIsStruckOnlyWhenTheRuleSaysSo) {
  const Op agree = of_kind(OpKind::agree, 0, 4, Phase::recovery);
  const Op create = of_kind(OpKind::comm_create, 0, 4, Phase::recovery);
  EXPECT_FALSE(asks(rule(FaultKind::rank_crash), agree));
  EXPECT_FALSE(asks(rule(FaultKind::rank_crash), create));
  Rule by_op = rule(FaultKind::rank_crash);
  by_op.when.op = OpKind::agree;
  EXPECT_TRUE(asks(by_op, agree));
  EXPECT_FALSE(asks(by_op, create));
  Rule by_phase = rule(FaultKind::rank_crash);
  by_phase.when.phase = Phase::recovery;
  EXPECT_TRUE(asks(by_phase, agree));
  EXPECT_TRUE(asks(by_phase, create));
}

TEST(Trigger, ACrashStrikesWhatARankDoesByItselfWhereItsOpOrPhaseIsNamed) {
  Op launch = reduction(0, 1);
  launch.kind = OpKind::compute;
  launch.phase = Phase::backward;
  Rule crash = rule(FaultKind::rank_crash);
  EXPECT_FALSE(asks(crash, launch)) << "the first operation that leaves the rank is meant";
  crash.when.phase = Phase::backward;
  EXPECT_TRUE(asks(crash, launch));
  crash.when.phase = Phase::forward;
  EXPECT_FALSE(asks(crash, launch));
  launch.phase = Phase::grad_reduce;
  crash.when.phase = Phase::grad_reduce;
  EXPECT_FALSE(asks(crash, launch)) << "the reduction is meant, not what is computed for it";
  crash.when.op = OpKind::compute;
  EXPECT_TRUE(asks(crash, launch));
}

TEST(Trigger, CallCountsTheMatchesOfEachRankForItself) {
  Rule third = dropping();
  third.when.call = 3;
  third.count = 0;
  RuleState state = state_of(third);
  EXPECT_FALSE(state.asks(message(0, 1, 0), 0));
  EXPECT_FALSE(state.asks(message(5, 1, 0), 0));
  EXPECT_FALSE(state.asks(message(0, 1, 1), 0));
  EXPECT_FALSE(state.asks(of_kind(OpKind::vote, 0, 1), 0)) << "not a match, so not counted";
  EXPECT_TRUE(state.asks(message(0, 1, 2), 0));
  EXPECT_FALSE(state.asks(message(5, 1, 1), 0));
  EXPECT_TRUE(state.asks(message(5, 1, 2), 0));
  EXPECT_TRUE(state.asks(message(0, 1, 3), 0)) << "from the n-th on, as often as count allows";
}

TEST(Trigger, CountHoldsOverEpochsAndRetries) {
  Rule twice = dropping();
  twice.when.step = 3;
  twice.count = 2;
  Bench bench({twice});
  std::vector<bool> dropped;
  for (std::uint32_t epoch = 0; epoch < 4; ++epoch) {
    const NotingTransport::Call call = bench.exchange(0, reduction(0, 3, 1, epoch));
    int fates = 0;
    for (const Piece& piece : call.pieces) fates += piece.fate != nullptr;
    dropped.push_back(fates > 0);
  }
  EXPECT_EQ(dropped, (std::vector<bool>{true, false, false, false}))
      << "two messages of the first attempt, and no more";
  EXPECT_EQ(bench.fired(), 2u);
}

TEST(Trigger, CountZeroHasNoLimit) {
  Rule r = dropping();
  r.count = 0;
  r.when.peer = 1;
  Bench bench({r});
  for (std::int64_t step = 0; step < 20; ++step) EXPECT_NE(bench.fate(0, 1, reduction(0, step)), nullptr);
  EXPECT_EQ(bench.fired(), 20u);
}

TEST(Draws, FollowTheProbabilityAndTheSeed) {
  Rule r = dropping();
  r.count = 0;
  r.when.probability = 0.25;
  const std::vector<bool> fires = pattern(state_of(r), 4000);
  const auto hits = std::count(fires.begin(), fires.end(), true);
  EXPECT_GT(hits, 880);
  EXPECT_LT(hits, 1120);
  EXPECT_EQ(fires, pattern(state_of(r), 4000));
  EXPECT_NE(fires, pattern(state_of(r, 2), 4000));
}

TEST(Draws, NeitherOtherRulesNorThePlaceInThePlanNorOtherRanksMoveThem) {
  Rule a = dropping();
  a.count = 0;
  a.when.probability = 0.5;
  Rule b = a;
  b.when.probability = 0.4;

  const auto fates_of_b = [&](std::vector<Rule> rules, bool others_first) {
    Bench bench(std::move(rules));
    std::vector<bool> hit;
    for (std::int64_t step = 0; step < 200; ++step) {
      if (others_first) bench.exchange(1, reduction(1, step));
      const std::uint64_t before = bench.plan.status().back().fired;
      bench.exchange(0, reduction(0, step));
      hit.push_back(bench.plan.status().back().fired > before);
    }
    return hit;
  };
  const std::vector<bool> alone = fates_of_b({b}, false);
  EXPECT_EQ(alone, fates_of_b({a, b}, false));
  EXPECT_EQ(alone, fates_of_b({a, a, b}, false));
  EXPECT_EQ(alone, fates_of_b({b}, true));
}

TEST(Draws, EqualRulesDrawDifferently) {
  Rule r = dropping();
  r.count = 0;
  r.when.probability = 0.5;
  EXPECT_NE(pattern(state_of(r, 1, 0), 200), pattern(state_of(r, 1, 1), 200));
  EXPECT_NE(pattern(state_of(r), 200, 0), pattern(state_of(r), 200, 1)) << "and so do the ranks";
}

TEST(Trigger, AFiringIsRecordedWithTimeRankAndOp) {
  Rule r = dropping();
  r.when.peer = 3;
  r.count = 2;
  Bench bench({r});
  std::vector<std::string> story;
  bench.plan.on_fired([&](std::size_t number, TimeNs now, int rank, const Op* op) {
    story.push_back(std::to_string(number) + " " + std::to_string(now) + " " + std::to_string(rank) + " " +
                    std::to_string(op->step));
  });
  bench.at(70);
  bench.exchange(2, reduction(2, 4));
  bench.at(90);
  bench.exchange(1, reduction(1, 4));
  bench.exchange(0, reduction(0, 4));
  const RuleStatus status = bench.plan.status()[0];
  EXPECT_EQ(status.kind, FaultKind::message_drop);
  EXPECT_EQ(status.fired, 2u);
  EXPECT_EQ(status.first_fired_ns, 70);
  EXPECT_EQ(status.fired_ns, (std::vector<TimeNs>{70, 90}));
  EXPECT_EQ(status.ranks, (std::vector<int>{1, 2}));
  ASSERT_TRUE(status.first_op.has_value());
  EXPECT_EQ(status.first_op->rank, 2);
  EXPECT_EQ(status.first_op->peer, 3);
  EXPECT_EQ(status.first_op->step, 4);
  EXPECT_EQ(story, (std::vector<std::string>{"0 70 2 4", "0 90 1 4"}));
}

TEST(Trigger, ARuleThatNeverFiredSaysWhatItMet) {
  Rule late = rule(FaultKind::collective_timeout);
  late.when.rank = 2;
  late.when.step = 7;
  late.when.op = OpKind::all_gather;
  RuleState state = state_of(late);
  EXPECT_EQ(met_text(late, state.status()), "it met no operation that it could strike");
  EXPECT_FALSE(state.asks(reduction(2, 3), 0));
  EXPECT_EQ(met_text(late, state.status()), "it met no operation of rank 2 in step 7; their last step was 3");
  for (const int rank : {2, 2, 1}) EXPECT_FALSE(state.asks(reduction(rank, 7), 0));
  EXPECT_EQ(met_text(late, state.status()), "of rank 2 in step 7 it met all_reduce in grad_reduce (2)");

  Rule fifth = dropping();
  fifth.when.call = 5;
  RuleState waits = state_of(fifth);
  for (int i = 0; i < 2; ++i) EXPECT_FALSE(waits.asks(message(0, 1, 0), 0));
  EXPECT_EQ(met_text(fifth, waits.status()), "it fires at match 5, and met 2");

  Rule unlikely = dropping();
  unlikely.when.probability = 1e-300;
  RuleState idle = state_of(unlikely);
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(idle.asks(message(0, 1, 0), 0));
  EXPECT_EQ(met_text(unlikely, idle.status()), "it met 3 operations that fit, and no draw of its probability hit");
}

}  // namespace seeksim::faults::test
