// Ranks that bring something else than the others, messages that come twice, communicators of the wrong ranks.
#include <gtest/gtest.h>

#include "tests/support/manual_seams.h"

namespace seeksim::faults::test {
namespace {

Rule bringing(Mode mode) {
  Rule r = rule(FaultKind::collective_mismatch);
  r.when.rank = 1;
  r.when.step = 2;
  r.mode = mode;
  return r;
}

}  // namespace

TEST(Mismatch, ChangesWhatOneRankBrings) {
  Bench kind({bringing(Mode::op)});
  EXPECT_EQ(kind.exchange(1, reduction(1, 1)).op.kind, OpKind::all_reduce);
  EXPECT_EQ(kind.exchange(1, reduction(1, 2)).op.kind, OpKind::all_gather);
  EXPECT_EQ(kind.exchange(0, reduction(0, 2)).op.kind, OpKind::all_reduce);
  EXPECT_FALSE(kind.seams[0].transport.has_native(Comm{1}, reduction(0, 2))) << "all ranks send messages then";
  EXPECT_TRUE(kind.seams[0].transport.has_native(Comm{1}, reduction(0, 1)));

  Bench count({bringing(Mode::count)});
  for (const Piece& piece : count.exchange(1, reduction(1, 2)).pieces) EXPECT_EQ(piece.hi - piece.lo, 32u);
  Bench type({bringing(Mode::dtype)});
  for (const Piece& piece : type.exchange(1, reduction(1, 2)).pieces) EXPECT_EQ(piece.type, ElementType::f32);
}

TEST(Mismatch, WhatIsLeftOutMovesAllThatComesAfter) {
  Bench bench({bringing(Mode::skip)});
  bench.exchange(1, reduction(1, 1, 7));
  const std::size_t before = bench.inner[1].transport.calls.size();
  bench.exchange(1, reduction(1, 2, 8));
  EXPECT_EQ(bench.inner[1].transport.calls.size(), before) << "left out";
  EXPECT_EQ(bench.exchange(1, reduction(1, 2, 9)).op.sequence, 8u);
  EXPECT_EQ(bench.exchange(1, reduction(1, 3, 10)).op.sequence, 9u);

  Bench none({bringing(Mode::count0)});
  none.exchange(1, reduction(1, 1, 7));
  none.exchange(1, reduction(1, 2, 8));
  EXPECT_EQ(none.exchange(1, reduction(1, 2, 9)).op.sequence, 9u) << "it took part with nothing";
}

TEST(Mismatch, TwoOperationsInTheOtherOrder) {
  Bench bench({bringing(Mode::swap_order)});
  EXPECT_EQ(bench.exchange(1, reduction(1, 2, 8)).op.sequence, 9u);
  EXPECT_EQ(bench.exchange(1, reduction(1, 2, 9)).op.sequence, 8u);
  EXPECT_EQ(bench.exchange(1, reduction(1, 2, 10)).op.sequence, 10u);
}

TEST(Zombie, AMessageComesAgain) {
  Rule r = rule(FaultKind::zombie_message);
  r.when.rank = 1;
  r.when.peer = 2;
  r.delay_ns = 77;
  Bench bench({r});
  const PieceFate* fate = bench.fate(1, 2, reduction(1, 1));
  ASSERT_NE(fate, nullptr);
  EXPECT_EQ(fate->replay_ns, 77);
  EXPECT_FALSE(fate->drop || fate->corrupt);
  EXPECT_EQ(bench.fate(1, 2, reduction(1, 2)), nullptr) << "once";
  EXPECT_FALSE(bench.seams[3].transport.has_native(Comm{1}, reduction(3, 9))) << "it may land in any later one";
}

TEST(LossyLink, LosesItsShareAndDelaysTheRest) {
  Rule r = link(FaultKind::link_drop, 0, 2);
  r.loss = 0.25;
  r.delay_ns = 50;
  Bench bench({r});
  int lost = 0;
  for (int i = 0; i < 1000; ++i) {
    const PieceFate* fate = bench.fate(0, 2, reduction(0, i));
    ASSERT_NE(fate, nullptr);
    lost += fate->drop;
    EXPECT_EQ(fate->delay_ns, fate->drop ? 0 : 50);
  }
  EXPECT_NEAR(lost, 250, 60);
  EXPECT_EQ(bench.fired(), std::uint64_t(lost));
}

TEST(InitFailure, ARankBuildsAmongTheWrongOnes) {
  for (const Mode mode : {Mode::wrong_nranks, Mode::dup_rank}) {
    Rule r = rule(FaultKind::init_failure);
    r.when.rank = 2;
    r.mode = mode;
    Bench bench({r});
    CommSpec spec;
    spec.members = {0, 1, 2, 3};
    const Op op = of_kind(OpKind::comm_create, 2, -1, Phase::init);
    bench.seams[2].transport.create(op, spec, kForever);
    const std::vector<int> wrong = mode == Mode::dup_rank ? std::vector<int>{0, 1, 0, 3} : std::vector<int>{1, 2, 3};
    EXPECT_EQ(bench.inner[2].transport.members, wrong);
    bench.seams[2].transport.create(op, spec, kForever);
    EXPECT_EQ(bench.inner[2].transport.members, spec.members) << "once";
    EXPECT_EQ(bench.fired(), 1u);
  }
}

}  // namespace seeksim::faults::test
