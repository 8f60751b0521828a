// Faults of machines, devices, clocks and data around hand-written seams: what each kind does, and that it does nothing
// to whom it is not about.
#include <gtest/gtest.h>

#include "tests/support/manual_seams.h"

namespace seeksim::faults::test {
namespace {

Rule of(FaultKind kind, int rank) {
  Rule r = rule(kind);
  r.when.rank = rank;
  return r;
}

void launch(Bench& bench, int rank, OpKind kind, std::int64_t step, int micro_batch = 0) {
  Op op = of_kind(kind, rank, step, Phase::forward);
  op.micro_batch = micro_batch;
  bench.seams[std::size_t(rank)].device.compute_queue().enqueue_kernel(op, Cost{}, Closure([] {}), {});
}

int launched(const Bench& bench, int rank) { return bench.inner[std::size_t(rank)].device.queue.launched; }

ErrorKind error_of(const std::function<void()>& act) {
  try {
    act();
  } catch (const SeamError& error) {
    return error.kind();
  }
  return ErrorKind::count_;
}

}  // namespace

TEST(NodeCrash, TakesAllRanksOfAMachineWhenOneGetsThere) {
  Rule r = rule(FaultKind::node_crash);
  r.when.node = 1;
  r.when.step = 2;
  Bench bench({r});
  std::vector<std::pair<int, bool>> killed;
  bench.plan.kills_through([&](int rank, bool lose) { killed.emplace_back(rank, lose); });
  EXPECT_NO_THROW(bench.exchange(0, reduction(0, 2))) << "of the other machine";
  EXPECT_NO_THROW(bench.exchange(2, reduction(2, 1)));
  EXPECT_THROW(bench.exchange(3, reduction(3, 2)), RankDied);
  EXPECT_EQ(killed, (std::vector<std::pair<int, bool>>{{2, true}, {3, true}}));
  EXPECT_EQ(bench.fired(), 1u);
  EXPECT_EQ(bench.plan.status()[0].ranks, (std::vector<int>{2, 3}));
}

TEST(NodeCrash, AtATimeIsACrashOfEachRankAndFiresOnce) {
  Rule r = rule(FaultKind::node_crash);
  r.when.node = 0;
  r.when.at_ns = 7;
  r.lose_local_storage = false;
  Bench bench({r});
  const auto crashes = bench.plan.timed_crashes();
  ASSERT_EQ(crashes.size(), 2u);
  for (const auto& crash : crashes) {
    EXPECT_FALSE(crash.lose_files);
    bench.plan.fired(crash.rule, crash.at_ns, crash.rank);
  }
  EXPECT_EQ(bench.fired(), 1u);
  EXPECT_EQ(bench.plan.status()[0].ranks, (std::vector<int>{0, 1}));
}

TEST(KernelHang, TheLaunchTakesLongerThanAnyRun) {
  Rule r = of(FaultKind::kernel_hang, 1);
  r.when.step = 3;
  Bench bench({r});
  const Device& device = bench.seams[1].device;
  EXPECT_EQ(device.duration(of_kind(OpKind::compute, 1, 2, Phase::forward), {}), 1000);
  EXPECT_GT(device.duration(of_kind(OpKind::compute, 1, 3, Phase::forward), {}),
            TimeNs(10) * 365 * 24 * 3600 * kSecond);
  EXPECT_EQ(device.duration(of_kind(OpKind::compute, 1, 3, Phase::forward), {}), 1000) << "once";
}

TEST(DeviceError, AfterItNothingRunsAndEveryWaitSaysWhy) {
  Rule r = of(FaultKind::device_error, 1);
  r.when.step = 3;
  r.code = 220;
  Bench bench({r});
  launch(bench, 1, OpKind::compute, 2);
  EXPECT_EQ(launched(bench, 1), 1);
  launch(bench, 1, OpKind::compute, 3);
  launch(bench, 1, OpKind::compute, 3);
  EXPECT_EQ(launched(bench, 1), 1) << "the context is gone";
  Seams& seams = bench.seams[1];
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(error_of([&] { seams.device.wait({}, 0, 0); }), ErrorKind::device_lost);
    EXPECT_EQ(error_of([&] { bench.exchange(1, reduction(1, 3)); }), ErrorKind::device_lost);
    EXPECT_EQ(error_of([&] { seams.device.allocate(8, MemoryTag::scratch, "x"); }), ErrorKind::device_lost);
  }
  EXPECT_FALSE(seams.device.drain_by(0, true)) << "its queues run empty, and nothing of it counts";
}

TEST(DeviceError, OneThatIsNotStickyIsOneFailedLaunch) {
  Rule r = of(FaultKind::device_error, 1);
  r.sticky = false;
  Bench bench({r});
  launch(bench, 1, OpKind::compute, 0);
  EXPECT_EQ(error_of([&] { bench.seams[1].device.wait({}, 0, 0); }), ErrorKind::closure);
  launch(bench, 1, OpKind::compute, 0);
  EXPECT_EQ(launched(bench, 1), 1);
  EXPECT_EQ(error_of([&] { bench.seams[1].device.wait({}, 0, 0); }), ErrorKind::count_);
}

TEST(Pause, TheHostStandsStillAndGoesOn) {
  Rule r = of(FaultKind::pause, 1);
  r.when.op = OpKind::compute;
  r.delay_ns = 90 * kSecond;
  Bench bench({r});
  bench.at(5);
  launch(bench, 1, OpKind::compute, 0);
  EXPECT_EQ(bench.inner[1].clock.sleeps, (std::vector<TimeNs>{90 * kSecond + 5}));
  EXPECT_EQ(launched(bench, 1), 1);
}

TEST(ClockSkew, IsInWhatARankReadsAndNotInWhatItWaitsFor) {
  Rule r = of(FaultKind::clock_skew, 1);
  r.offset_ns = -500 * kMillisecond;
  r.drift_ppm = 200;
  Bench bench({r});
  bench.at(10 * kSecond);
  Seams& seams = bench.seams[1];
  const TimeNs believed = 10 * kSecond - 500 * kMillisecond + 2 * kMillisecond;
  EXPECT_EQ(seams.clock.now(), believed);
  seams.clock.sleep_until(seams.clock.now() + kSecond);
  EXPECT_EQ(bench.inner[1].clock.sleeps, (std::vector<TimeNs>{11 * kSecond}));
  EXPECT_EQ(bench.fired(), 1u);
  EXPECT_EQ(&bench.seams[0].clock, &bench.inner[0].clock) << "the others' clocks are right";
}

TEST(ClockSkew, AJumpComesAtItsTime) {
  Rule r = of(FaultKind::clock_skew, 1);
  r.when.at_ns = 3 * kSecond;
  r.offset_ns = -kSecond;
  Bench bench({r});
  bench.at(2 * kSecond);
  EXPECT_EQ(bench.seams[1].clock.now(), 2 * kSecond);
  EXPECT_EQ(bench.fired(), 0u);
  bench.at(3 * kSecond);
  EXPECT_EQ(bench.seams[1].clock.now(), 2 * kSecond);
  EXPECT_EQ(bench.fired(), 1u);
}

TEST(Data, ALoaderStallsOrFailsAtItsMicroBatch) {
  Rule stall = of(FaultKind::data_stall, 1);
  stall.when.micro_batch = 1;
  stall.delay_ns = kSecond;
  Rule fail = of(FaultKind::data_error, 2);
  fail.when.step = 4;
  Bench bench({stall, fail});
  launch(bench, 1, OpKind::data_load, 0, 0);
  EXPECT_TRUE(bench.inner[1].clock.sleeps.empty());
  launch(bench, 1, OpKind::data_load, 0, 1);
  EXPECT_EQ(bench.inner[1].clock.sleeps.size(), 1u);
  launch(bench, 2, OpKind::data_load, 3);
  launch(bench, 2, OpKind::compute, 4);
  EXPECT_EQ(error_of([&] { launch(bench, 2, OpKind::data_load, 4); }), ErrorKind::data_error);
  EXPECT_EQ(error_of([&] { launch(bench, 2, OpKind::data_load, 4); }), ErrorKind::count_) << "read again, it is there";
  EXPECT_EQ(launched(bench, 2), 3);
}

TEST(Data, ASampleIsWhosoeverBringsIt) {
  Rule fail = rule(FaultKind::data_error);
  fail.when.sample = 21;
  fail.count = 0;
  Bench bench({fail});
  const auto brings = [&](int rank, std::int64_t first, int samples) {
    Op op = of_kind(OpKind::data_load, rank, 2, Phase::data);
    op.sample = first;
    op.samples = samples;
    return error_of(
        [&] { bench.seams[std::size_t(rank)].device.compute_queue().enqueue_kernel(op, Cost{}, Closure([] {}), {}); });
  };
  EXPECT_EQ(brings(0, 20, 1), ErrorKind::count_);
  EXPECT_EQ(brings(0, 17, 4), ErrorKind::count_);
  EXPECT_EQ(brings(0, 22, 4), ErrorKind::count_);
  EXPECT_EQ(brings(0, 21, 0), ErrorKind::count_);
  EXPECT_EQ(brings(0, 18, 4), ErrorKind::data_error);
  EXPECT_EQ(brings(3, 21, 1), ErrorKind::data_error);
  try {
    Op op = of_kind(OpKind::data_load, 2, 2, Phase::data);
    op.sample = 16;
    op.samples = 8;
    bench.seams[2].device.compute_queue().enqueue_kernel(op, Cost{}, Closure([] {}), {});
    FAIL() << "brought";
  } catch (const SeamError& error) {
    EXPECT_EQ(error.op().sample, 21);
    EXPECT_EQ(error.op().samples, 1);
    EXPECT_NE(error.detail().find("cannot bring sample 21"), std::string::npos) << error.detail();
  }
}

TEST(PreemptionNotice, IsToldFromItsTimeOnAndIsFollowedByTheEnd) {
  Rule r = of(FaultKind::preemption_notice, 1);
  r.when.at_ns = 10 * kSecond;
  r.notice_ns = 120 * kSecond;
  Bench bench({r});
  ASSERT_EQ(bench.plan.timed_crashes().size(), 1u);
  EXPECT_EQ(bench.plan.timed_crashes()[0].at_ns, 130 * kSecond);
  bench.at(9 * kSecond);
  EXPECT_EQ(bench.seams[1].control.notice(), kForever);
  bench.at(10 * kSecond);
  EXPECT_EQ(bench.seams[1].control.notice(), 130 * kSecond);
  EXPECT_EQ(bench.seams[0].control.notice(), kForever);
  EXPECT_EQ(bench.fired(), 1u);
}

TEST(PreemptionNotice, OneThatIsCalledOffKillsNobody) {
  Rule r = of(FaultKind::preemption_notice, 1);
  r.when.at_ns = 10 * kSecond;
  r.notice_ns = 120 * kSecond;
  r.cancelled = 1;
  Bench bench({r});
  EXPECT_TRUE(bench.plan.timed_crashes().empty());
  bench.at(69 * kSecond);
  EXPECT_EQ(bench.seams[1].control.notice(), 130 * kSecond);
  bench.at(70 * kSecond);
  EXPECT_EQ(bench.seams[1].control.notice(), kForever);
}

TEST(ControlPlaneFaults, AreToldToTheWorld) {
  Rule split = rule(FaultKind::partition);
  split.sides = {{0, 1}, {2, 3}};
  split.when.at_ns = 5;
  split.down_ns = 10;
  Rule dead = rule(FaultKind::store_death);
  dead.when.at_ns = 7;
  Bench bench({split, dead});
  const auto outages = bench.plan.control_outages();
  ASSERT_EQ(outages.size(), 2u);
  EXPECT_EQ(outages[0].ranks, (std::vector<int>{2, 3}));
  EXPECT_EQ(outages[0].until_ns, 15);
  EXPECT_FALSE(outages[0].all);
  EXPECT_EQ(outages[1].until_ns, kForever);
  EXPECT_TRUE(outages[1].all);
  bench.at(6);
  const PieceFate* across = bench.fate(0, 2, reduction(0, 1));
  ASSERT_NE(across, nullptr);
  EXPECT_EQ(across->down_from, 5);
  EXPECT_EQ(across->down_until, 15);
  EXPECT_EQ(bench.fate(0, 1, reduction(0, 1)), nullptr) << "on the same side";
}

}  // namespace seeksim::faults::test
