// Each decorator around a hand-written seam: what it does when a rule fires, and that it does nothing otherwise.
#include <gtest/gtest.h>

#include "tests/support/manual_seams.h"

namespace seeksim::faults::test {

namespace {

Rule hanging(int rank) {
  Rule r = rule(FaultKind::collective_timeout);
  r.when.rank = rank;
  return r;
}

Rule crashing(int rank, Mode mode) {
  Rule r = rule(FaultKind::rank_crash);
  r.when.rank = rank;
  r.mode = mode;
  return r;
}

Agreement vote(Seams& seams, int rank, std::int64_t step) {
  return seams.control.agree(of_kind(OpKind::vote, rank, step, Phase::commit), 0, Ballot{}, kForever);
}

}  // namespace

TEST(InertPlan, HandsBackTheVerySeamsThatItGot) {
  Bench bench({});
  for (int rank = 0; rank < 4; ++rank) {
    Inner& own = bench.inner[std::size_t(rank)];
    const Seams& seams = bench.seams[std::size_t(rank)];
    EXPECT_EQ(&seams.clock, &own.clock);
    EXPECT_EQ(&seams.device, &own.device);
    EXPECT_EQ(&seams.transport, &own.transport);
    EXPECT_EQ(&seams.storage, &own.storage);
    EXPECT_EQ(&seams.control, &own.control);
  }
}

TEST(InertPlan, RulesForOneRankLeaveTheSeamsOfTheOthersAlone) {
  Bench bench({hanging(1)});
  EXPECT_EQ(&bench.seams[0].transport, &bench.inner[0].transport);
  EXPECT_NE(&bench.seams[1].transport, &bench.inner[1].transport);
  EXPECT_EQ(&bench.seams[0].control, &bench.inner[0].control);
}

TEST(InertPlan, WhatNoRuleIsAboutPassesThroughUnchanged) {
  Rule drop = rule(FaultKind::message_drop);
  drop.when.step = 99;
  Rule slow = rule(FaultKind::straggler);
  slow.when.rank = 0;
  slow.when.step = 99;
  Rule die = crashing(0, Mode::before);
  die.when.step = 99;
  Bench bench({drop, slow, die});
  Seams& seams = bench.seams[0];
  Inner& own = bench.inner[0];

  for (const Piece& piece : bench.exchange(0, reduction(0, 1)).pieces) EXPECT_EQ(piece.fate, nullptr);
  EXPECT_EQ(own.transport.calls.back().dies, DiesAt::never);
  EXPECT_TRUE(seams.transport.has_native(Comm{1}, reduction(0, 1)));
  EXPECT_EQ(seams.transport.tree_all_reduce(own.device.queue, Comm{1}, reduction(0, 1), {}), CommResult::success);
  EXPECT_EQ(seams.transport.create(of_kind(OpKind::comm_create, 0, 1), {}, 0).handle, 1u);
  EXPECT_EQ(seams.transport.split({}, Comm{1}, 0, 0, 0).handle, 2u);
  EXPECT_EQ(seams.transport.shrink({}, Comm{1}, {}, 0).handle, 3u);
  EXPECT_EQ(seams.transport.async_error(Comm{1}), CommResult::remote_error);
  EXPECT_EQ(seams.transport.revoke(Comm{1}), CommResult::in_progress);
  EXPECT_EQ(seams.transport.abort({}), CommResult::in_progress);
  EXPECT_EQ(seams.transport.finalize(Comm{1}), CommResult::in_progress);
  EXPECT_EQ(seams.transport.destroy(Comm{1}), CommResult::in_progress);
  EXPECT_EQ(seams.transport.unmatched(Comm{1}).peer, 3);

  EXPECT_EQ(seams.device.duration(of_kind(OpKind::compute, 0, 1), {}), 1000);
  EXPECT_EQ(seams.device.wait({}, 0, 0), WaitResult::timed_out);
  seams.device.allocate(123, MemoryTag::scratch, "x");
  EXPECT_EQ(own.device.allocated, (std::vector<std::size_t>{123}));
  EXPECT_EQ(seams.device.capacity(), 7u);
  EXPECT_EQ(seams.device.use_total().peak, 4u);
  EXPECT_EQ(vote(seams, 0, 1).members.size(), 1u);
  EXPECT_EQ(seams.control.epoch(), 5u);
  for (const RuleStatus& status : bench.plan.status()) EXPECT_EQ(status.fired, 0u);
}

TEST(CollectiveTimeout, AHungRankNeverJoinsAndNeverComesBack) {
  Rule r = hanging(1);
  r.when.op = OpKind::all_reduce;
  r.when.step = 7;
  Bench bench({r});
  bench.exchange(1, reduction(1, 6));
  EXPECT_THROW(bench.exchange(1, reduction(1, 7)), RankDied);
  EXPECT_EQ(bench.inner[1].clock.sleeps, (std::vector<TimeNs>{kForever}));
  EXPECT_EQ(bench.inner[1].transport.calls.size(), 1u) << "only step 6 was joined";
  EXPECT_EQ(bench.fired(), 1u);
}

TEST(CollectiveTimeout, HoldsForTheNativeSumTheVoteAndTheBuildingOfCommunicators) {
  Rule sum = hanging(0);
  Bench native({sum});
  EXPECT_TRUE(native.seams[0].transport.has_native(Comm{1}, reduction(0, 1))) << "a hang needs no single messages";
  EXPECT_THROW(native.seams[0].transport.tree_all_reduce(native.inner[0].device.queue, Comm{1}, reduction(0, 1), {}),
               RankDied);
  EXPECT_TRUE(native.inner[0].transport.calls.empty());
  Bench library({sum, crashing(1, Mode::before)});
  const auto sums = [&](std::size_t rank, bool to_all) {
    Transport& transport = library.seams[rank].transport;
    Queue& queue = library.inner[rank].device.queue;
    return to_all ? transport.library_all_reduce(queue, Comm{1}, reduction(int(rank), 1), {}, {})
                  : transport.library_reduce(queue, Comm{1}, reduction(int(rank), 1), {}, {});
  };
  EXPECT_EQ(library.seams[0].transport.library_sums(), LibrarySums::instead);
  EXPECT_THROW(sums(0, true), RankDied);
  EXPECT_THROW(sums(1, false), RankDied);
  EXPECT_EQ(sums(2, true), CommResult::success);
  EXPECT_EQ(sums(2, false), CommResult::success);
  EXPECT_TRUE(library.inner[0].transport.calls.empty() && library.inner[1].transport.calls.empty());
  EXPECT_EQ(library.inner[2].transport.calls.size(), 2u);

  Rule at_vote = hanging(0);
  at_vote.when.op = OpKind::vote;
  Bench voting({at_vote});
  EXPECT_THROW(vote(voting.seams[0], 0, 1), RankDied);
  EXPECT_EQ(voting.inner[0].control.agreements, 0);

  Rule at_create = hanging(0);
  at_create.when.op = OpKind::comm_create;
  Bench creating({at_create});
  EXPECT_THROW(creating.seams[0].transport.create(of_kind(OpKind::comm_create, 0, -1), {}, 0), RankDied);
  EXPECT_TRUE(creating.inner[0].transport.calls.empty());
}

TEST(CollectiveTimeout, ALateRankJoinsAfterItsDelay) {
  Rule r = hanging(1);
  r.mode = Mode::late;
  r.delay_ns = 30 * kSecond;
  Bench bench({r});
  bench.at(5);
  bench.exchange(1, reduction(1, 7));
  EXPECT_EQ(bench.inner[1].clock.now(), 5 + 30 * kSecond);
  EXPECT_EQ(bench.inner[1].transport.calls.size(), 1u);
  bench.exchange(1, reduction(1, 8));
  EXPECT_EQ(bench.inner[1].clock.now(), 5 + 30 * kSecond) << "once";
}

TEST(RankCrash, BeforeTheRankIsGoneBeforeItJoins) {
  Bench bench({crashing(2, Mode::before)});
  EXPECT_THROW(bench.exchange(2, reduction(2, 0)), RankDied);
  EXPECT_TRUE(bench.inner[2].transport.calls.empty());
}

TEST(RankCrash, ADeadProcessTidiesNothingUp) {
  Bench bench({crashing(2, Mode::before)});
  Seams& seams = bench.seams[2];
  Inner& own = bench.inner[2];
  EXPECT_THROW(bench.exchange(2, reduction(2, 0)), RankDied);
  // What destructors would ask for while the stack unwinds:
  EXPECT_EQ(seams.transport.finalize(Comm{1}), CommResult::success);
  EXPECT_EQ(seams.transport.abort({}), CommResult::success);
  EXPECT_EQ(seams.transport.destroy(Comm{1}), CommResult::success);
  EXPECT_EQ(seams.transport.revoke(Comm{1}), CommResult::success);
  seams.control.revoke(0, {}, ErrorKind::timeout);
  seams.control.enter_epoch(1, {});
  seams.device.drain();
  EXPECT_EQ(seams.device.wait({}, 0, 0), WaitResult::done);
  seams.device.release(nullptr);
  EXPECT_TRUE(own.transport.calls.empty());
  EXPECT_EQ(own.control.revokes + own.control.entered + own.device.drains + own.device.waits, 0);
  EXPECT_EQ(own.device.released, 1) << "memory is given back all the same";
  EXPECT_THROW(vote(seams, 2, 0), RankDied);
}

TEST(RankCrash, DuringAndAfterAreLeftToTheTransport) {
  Bench during({crashing(2, Mode::during)});
  EXPECT_EQ(during.exchange(2, reduction(2, 0)).dies, DiesAt::in_flight);
  Bench after({crashing(2, Mode::after)});
  EXPECT_EQ(after.exchange(2, reduction(2, 0)).dies, DiesAt::after);
  EXPECT_EQ(after.exchange(2, reduction(2, 1)).dies, DiesAt::never) << "once";
}

TEST(RankCrash, AfterAVoteItsBallotCountsButTheRankIsGone) {
  for (const Mode mode : {Mode::during, Mode::after}) {
    Rule r = crashing(1, mode);
    r.when.op = OpKind::vote;
    Bench bench({r});
    EXPECT_THROW(vote(bench.seams[1], 1, 3), RankDied);
    EXPECT_EQ(bench.inner[1].control.agreements, 1);
  }
}

namespace {

// Rank 1 does something of the kind by itself.
void act(Bench& bench, OpKind kind, std::int64_t step) {
  Seams& seams = bench.seams[1];
  if (kind == OpKind::allocate) {
    seams.device.allocate(8, MemoryTag::scratch, "x");
  } else if (kind == OpKind::join) {
    seams.control.join(of_kind(kind, 1, step), kForever);
  } else {
    const bool of_files = kind == OpKind::storage_read || kind == OpKind::storage_write ||
                          kind == OpKind::storage_sync || kind == OpKind::storage_rename;
    Queue& queue = of_files ? seams.device.storage_queue() : seams.device.compute_queue();
    queue.enqueue_kernel(of_kind(kind, 1, step), Cost{}, Closure([] {}), {});
  }
}

}  // namespace

TEST(RankCrash, StrikesAtEverythingThatARankDoesByItself) {
  for (const OpKind kind :
       {OpKind::compute, OpKind::copy, OpKind::data_load, OpKind::inspect, OpKind::host_compute, OpKind::allocate,
        OpKind::storage_read, OpKind::storage_write, OpKind::storage_sync, OpKind::storage_rename, OpKind::join}) {
    for (const Mode mode : {Mode::before, Mode::during, Mode::after}) {
      if (kind == OpKind::join && mode != Mode::before) continue;  // no member admits it here
      Rule r = crashing(1, mode);
      r.when.op = kind;
      Bench bench({r});
      EXPECT_THROW(act(bench, kind, 3), RankDied) << name(kind);
      EXPECT_EQ(bench.fired(), 1u) << name(kind);
      const NoQueue& queue = bench.inner[1].device.queue;
      const int done = queue.launched + int(bench.inner[1].device.allocated.size());
      EXPECT_EQ(done, mode == Mode::before ? 0 : 1) << name(kind);
      EXPECT_EQ(bench.inner[1].device.waits, mode == Mode::after && kind != OpKind::allocate ? 1 : 0) << name(kind);
    }
  }
}

TEST(RankCrash, LeavesWhatARankDoesByItselfAloneWhereNoRuleNamesIt) {
  Bench bench({crashing(1, Mode::before)});
  for (const OpKind kind : {OpKind::compute, OpKind::data_load, OpKind::allocate, OpKind::storage_write})
    EXPECT_NO_THROW(act(bench, kind, 3));
  EXPECT_EQ(bench.fired(), 0u);
  EXPECT_EQ(&bench.seams[1].device.compute_queue(), &bench.inner[1].device.compute_queue()) << "not even looked at";
  EXPECT_THROW(bench.exchange(1, reduction(1, 0)), RankDied);
  act(bench, OpKind::compute, 4);  // what a destructor might launch
}

TEST(RankCrash, AtATimeAloneIsForTheWorldToDo) {
  Rule r = crashing(1, Mode::unset);
  r.when.at_ns = 40 * kSecond;
  Bench bench({rule(FaultKind::message_drop), r});
  const std::vector<FaultPlan::TimedCrash> crashes = bench.plan.timed_crashes();
  ASSERT_EQ(crashes.size(), 1u);
  EXPECT_EQ(crashes[0].rank, 1);
  EXPECT_EQ(crashes[0].at_ns, 40 * kSecond);
  EXPECT_EQ(crashes[0].rule, 1u);
  bench.at(50 * kSecond);
  bench.exchange(1, reduction(1, 0));
  EXPECT_EQ(bench.fired(1), 0u);
  bench.plan.fired(1, 40 * kSecond, 1);
  EXPECT_EQ(bench.plan.status()[1].fired, 1u);
  EXPECT_EQ(bench.plan.status()[1].first_fired_ns, 40 * kSecond);
  EXPECT_EQ(bench.plan.status()[1].ranks, (std::vector<int>{1}));
}

TEST(RankCrash, AtATimeAndAnOperationWaitsForThatOperation) {
  Rule r = crashing(1, Mode::before);
  r.when.at_ns = 40;
  r.when.op = OpKind::all_reduce;
  Bench bench({r});
  EXPECT_TRUE(bench.plan.timed_crashes().empty());
  bench.at(39);
  EXPECT_NO_THROW(bench.exchange(1, reduction(1, 0)));
  bench.at(40);
  EXPECT_THROW(bench.exchange(1, reduction(1, 1)), RankDied);
}

TEST(Straggler, OneThatCoolsIsFastAgainAndSlowAgain) {
  Rule r = rule(FaultKind::straggler);
  r.when.rank = 1;
  r.factor = 3;
  r.ramp_ns = 100;
  r.cool_ns = 100;
  Bench bench({r});
  const auto at = [&](TimeNs now) {
    bench.at(now);
    return bench.seams[1].device.duration(of_kind(OpKind::compute, 1, 0), {});
  };
  EXPECT_EQ(at(0), 1000);
  EXPECT_EQ(at(50), 2000);
  EXPECT_EQ(at(100), 3000);
  EXPECT_EQ(at(150), 2000);
  EXPECT_EQ(at(200), 1000);
  EXPECT_EQ(at(250), 2000);
}

TEST(Straggler, ConstantlySlowFromItsFirstMatchOn) {
  Rule r = rule(FaultKind::straggler);
  r.when.rank = 1;
  r.when.step = 2;
  r.factor = 3;
  Bench bench({r});
  Device& device = bench.seams[1].device;
  EXPECT_EQ(device.duration(of_kind(OpKind::compute, 1, 1), {}), 1000);
  EXPECT_EQ(bench.fired(), 0u);
  EXPECT_EQ(device.duration(of_kind(OpKind::compute, 1, 2), {}), 3000);
  EXPECT_EQ(device.duration(of_kind(OpKind::compute, 1, 9), {}), 3000);
  EXPECT_EQ(device.duration(of_kind(OpKind::copy, 1, 9), {}), 1000) << "it computes slower; it copies as before";
  EXPECT_EQ(bench.seams[0].device.duration(of_kind(OpKind::compute, 0, 2), {}), 1000);
  EXPECT_EQ(bench.fired(), 1u) << "a condition fires once and lasts";
}

TEST(Straggler, PeriodicIsSlowForTheFirstPartOfEachPeriod) {
  Rule r = rule(FaultKind::straggler);
  r.when.rank = 0;
  r.factor = 2;
  r.period_ns = 1000;
  r.duty = 0.25;
  Bench bench({r});
  std::vector<TimeNs> took;
  for (const TimeNs now : {100, 349, 350, 1099, 1100, 1349, 1350}) {
    bench.at(now);
    took.push_back(bench.seams[0].device.duration(of_kind(OpKind::compute, 0, 0), {}));
  }
  EXPECT_EQ(took, (std::vector<TimeNs>{2000, 2000, 1000, 1000, 2000, 2000, 1000}));
}

TEST(Straggler, RampsFromFullSpeedToItsFactorAndStaysThere) {
  Rule r = rule(FaultKind::straggler);
  r.when.rank = 0;
  r.when.at_ns = 1000;
  r.factor = 2;
  r.ramp_ns = 1000;
  Bench bench({r});
  std::vector<TimeNs> took;
  for (const TimeNs now : {0, 1000, 1250, 1500, 2000, 9000}) {
    bench.at(now);
    took.push_back(bench.seams[0].device.duration(of_kind(OpKind::compute, 0, 0), {}));
  }
  EXPECT_EQ(took, (std::vector<TimeNs>{1000, 1000, 1250, 1500, 2000, 2000}));
  EXPECT_EQ(bench.plan.status()[0].first_fired_ns, 1000);
}

TEST(Straggler, TwoRulesOnOneDeviceMultiply) {
  Rule a = rule(FaultKind::straggler);
  a.when.rank = 0;
  a.factor = 2;
  Rule b = a;
  b.factor = 1.5;
  Bench bench({a, b});
  EXPECT_EQ(bench.seams[0].device.duration(of_kind(OpKind::compute, 0, 0), {}), 3000);
}

}  // namespace seeksim::faults::test
