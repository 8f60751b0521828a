// Faults of messages and links: attached once, at the sender, to the right pieces, with the right windows.
#include <gtest/gtest.h>

#include <set>

#include "tests/support/manual_seams.h"

namespace seeksim::faults::test {

namespace {

// Every (from, to) of a world whose piece carries a fate in one collective, in which all ranks post.
std::set<std::pair<int, int>> touched(Bench& bench, std::int64_t step) {
  std::set<std::pair<int, int>> found;
  for (int rank = 0; rank < int(bench.inner.size()); ++rank) {
    for (const Piece& piece : bench.exchange(rank, reduction(rank, step)).pieces) {
      if (!piece.fate) continue;
      EXPECT_TRUE(piece.send) << "fates are the sender's: a receiver's piece carries none";
      found.insert({rank, piece.peer});
    }
  }
  return found;
}

using Pairs = std::set<std::pair<int, int>>;

}  // namespace

TEST(MessageDrop, TouchesOneMessageOfOneSender) {
  Rule r = rule(FaultKind::message_drop);
  r.when.rank = 0;
  r.when.peer = 3;
  r.when.step = 5;
  Bench bench({r});
  EXPECT_EQ(touched(bench, 4), Pairs{});
  EXPECT_EQ(touched(bench, 5), (Pairs{{0, 3}}));
  EXPECT_EQ(touched(bench, 5), Pairs{}) << "the retry goes through";
  EXPECT_EQ(bench.fired(), 1u);
}

TEST(MessageDrop, SaysDropAndNamesItsRule) {
  Bench bench({rule(FaultKind::message_corrupt), rule(FaultKind::message_drop)});
  const PieceFate* both = bench.fate(0, 1, reduction(0, 0));
  ASSERT_NE(both, nullptr);
  EXPECT_TRUE(both->drop);
  EXPECT_TRUE(both->corrupt) << "two rules on one piece are combined";
  EXPECT_EQ(both->rule, 1u);
}

TEST(MessageCorrupt, CarriesBitAndChecksum) {
  Rule r = rule(FaultKind::message_corrupt);
  r.bit = 20;
  r.checksum = false;
  Bench bench({r});
  const PieceFate* fate = bench.fate(1, 2, reduction(1, 0));
  ASSERT_EQ(fate, nullptr) << "the first match is the message to rank 0";
  const PieceFate* first = bench.inner[1].transport.calls.back().pieces[0].fate;
  ASSERT_NE(first, nullptr);
  EXPECT_TRUE(first->corrupt);
  EXPECT_FALSE(first->drop);
  EXPECT_FALSE(first->checksum);
  EXPECT_EQ(first->corrupt_bit, 20u);
}

TEST(MessageFaults, SkipMessagesWithoutContentWhichNobodySends) {
  Bench bench({rule(FaultKind::message_corrupt)});
  Inner& own = bench.inner[0];
  const Piece pieces[] = {
      {1, true, nullptr, 8, 8, nullptr}, {0, true, nullptr, 0, 8, nullptr}, {2, true, nullptr, 0, 8, nullptr}};
  bench.seams[0].transport.exchange(own.device.queue, Comm{1}, reduction(0, 0), pieces);
  const std::vector<Piece>& seen = own.transport.calls.back().pieces;
  EXPECT_EQ(seen[0].fate, nullptr) << "empty";
  EXPECT_EQ(seen[1].fate, nullptr) << "to itself";
  EXPECT_NE(seen[2].fate, nullptr);
}

TEST(LinkDrop, BothDirectionsOneDirectionAndNodes) {
  Rule both = link(FaultKind::link_drop, 0, 1);
  Bench two_way({both});
  EXPECT_EQ(touched(two_way, 0), (Pairs{{0, 1}, {1, 0}}));

  Rule one = both;
  one.both_directions = false;
  Bench one_way({one});
  EXPECT_EQ(touched(one_way, 0), (Pairs{{0, 1}}));

  Rule nodes = both;
  nodes.nodes = true;
  Bench between({nodes});
  EXPECT_EQ(touched(between, 0), (Pairs{{0, 2}, {0, 3}, {1, 2}, {1, 3}, {2, 0}, {2, 1}, {3, 0}, {3, 1}}));

  nodes.both_directions = false;
  Bench from_node_0({nodes});
  EXPECT_EQ(touched(from_node_0, 0), (Pairs{{0, 2}, {0, 3}, {1, 2}, {1, 3}}));
}

TEST(LinkDrop, PermanentLastsFromItsFirstMatchOn) {
  Rule r = link(FaultKind::link_drop, 0, 1);
  r.when.step = 4;
  Bench bench({r});
  bench.at(10);
  EXPECT_EQ(bench.fate(0, 1, reduction(0, 3)), nullptr);
  bench.at(20);
  const PieceFate* fate = bench.fate(0, 1, reduction(0, 4));
  ASSERT_NE(fate, nullptr);
  EXPECT_EQ(fate->down_from, 20);
  EXPECT_EQ(fate->down_until, kForever);
  EXPECT_FALSE(fate->drop);
  bench.at(900);
  EXPECT_EQ(bench.fate(0, 1, reduction(0, 9)), fate);
  EXPECT_EQ(bench.fate(1, 0, reduction(1, 9)), fate) << "the way back, too";
  EXPECT_EQ(bench.fired(), 1u);
  EXPECT_EQ(bench.plan.status()[0].ranks, (std::vector<int>{0, 1}));
}

TEST(LinkDrop, TransientCutsComeInWindows) {
  Rule r = link(FaultKind::link_drop, 0, 1);
  r.down_ns = 100;
  r.up_ns = 50;
  r.cycles = 2;
  Bench bench({r});
  const auto window_at = [&](TimeNs now) {
    bench.at(now);
    const PieceFate* fate = bench.fate(0, 1, reduction(0, 0));
    return fate ? std::pair(fate->down_from, fate->down_until) : std::pair(kForever, kForever);
  };
  const auto none = std::pair(kForever, kForever);
  EXPECT_EQ(window_at(1000), std::pair(TimeNs(1000), TimeNs(1100)));
  EXPECT_EQ(window_at(1099), std::pair(TimeNs(1000), TimeNs(1100)));
  EXPECT_EQ(window_at(1100), std::pair(TimeNs(1150), TimeNs(1250))) << "what is posted between two cuts meets the next";
  EXPECT_EQ(window_at(1200), std::pair(TimeNs(1150), TimeNs(1250)));
  EXPECT_EQ(window_at(1250), none) << "two cycles, and over";
}

TEST(LinkDrop, ACutAtATimeIsKnownToMessagesThatAreUnderWayThen) {
  Rule r = link(FaultKind::link_drop, 0, 1);
  r.when.at_ns = 500;
  r.down_ns = 100;
  Bench bench({r});
  const PieceFate* early = bench.fate(0, 1, reduction(0, 0));
  ASSERT_NE(early, nullptr);
  EXPECT_EQ(early->down_from, 500);
  EXPECT_EQ(early->down_until, 600);
  EXPECT_EQ(bench.fired(), 0u) << "posted before the cut: nothing has happened yet";
  early->touched_ns = 520;
  EXPECT_EQ(bench.fired(), 1u) << "the transport says that the cut met a message";
  EXPECT_EQ(bench.plan.status()[0].first_fired_ns, 520);
  EXPECT_EQ(bench.plan.status()[0].ranks, (std::vector<int>{0, 1}));
}

TEST(LinkDrop, ATouchOnACombinationCountsForTheCutInIt) {
  Rule slow = link(FaultKind::slow_link, 0, 1);
  Rule cut = link(FaultKind::link_drop, 0, 1);
  cut.when.at_ns = 500;
  cut.down_ns = 100;
  Bench bench({slow, cut});
  const PieceFate* both = bench.fate(0, 1, reduction(0, 0));
  ASSERT_NE(both, nullptr);
  both->touched_ns = 499;
  EXPECT_EQ(bench.fired(1), 0u);
  both->touched_ns = 500;
  EXPECT_EQ(bench.fired(1), 1u);
}

TEST(LinkDrop, TimesAsLongAsAScenarioMayWriteDoNotWrap) {
  Rule r = link(FaultKind::link_drop, 0, 1);
  r.down_ns = 9'000'000'000 * kSecond;
  r.up_ns = r.down_ns;
  r.cycles = 1 << 30;
  r.when.at_ns = r.down_ns;
  Bench bench({r});
  const PieceFate* fate = bench.fate(0, 1, reduction(0, 0));
  ASSERT_NE(fate, nullptr);
  EXPECT_EQ(fate->down_from, r.down_ns);
  EXPECT_EQ(fate->down_until, kForever);
  bench.at(kForever - 1);
  EXPECT_EQ(bench.fate(0, 1, reduction(0, 0)), fate);
}

TEST(LinkDrop, AMessagePostedInsideACutAtATimeFiresIt) {
  Rule r = link(FaultKind::link_drop, 0, 1);
  r.when.at_ns = 500;
  Bench bench({r});
  bench.at(700);
  bench.fate(0, 1, reduction(0, 0));
  EXPECT_EQ(bench.fired(), 1u);
}

TEST(SlowLink, StretchesAndDelaysOnceActive) {
  Rule r = link(FaultKind::slow_link, 0, 1);
  r.factor = 0.25;
  r.delay_ns = 30;
  r.when.at_ns = 100;
  Bench bench({r});
  EXPECT_EQ(bench.fate(0, 1, reduction(0, 0)), nullptr);
  bench.at(100);
  const PieceFate* fate = bench.fate(0, 1, reduction(0, 0));
  ASSERT_NE(fate, nullptr);
  EXPECT_EQ(fate->slow_factor, 4.0);
  EXPECT_EQ(fate->delay_ns, 30);
  EXPECT_EQ(fate->down_from, kForever);
  EXPECT_EQ(bench.fired(), 1u);
}

TEST(CombinedFates, AddMultiplyAndMergeAndAreMadeOnce) {
  Rule slow = link(FaultKind::slow_link, 0, 1);
  slow.factor = 0.5;
  Rule slower = slow;
  slower.delay_ns = 7;
  Rule cut = link(FaultKind::link_drop, 0, 1);
  cut.down_ns = 100;
  Rule longer = cut;
  longer.down_ns = 300;
  Bench bench({slow, slower, cut, longer});
  const PieceFate* fate = bench.fate(0, 1, reduction(0, 0));
  ASSERT_NE(fate, nullptr);
  EXPECT_EQ(fate->slow_factor, 4.0);
  EXPECT_EQ(fate->delay_ns, 7);
  EXPECT_EQ(fate->down_from, 0);
  EXPECT_EQ(fate->down_until, 300);
  EXPECT_EQ(bench.fate(0, 1, reduction(0, 1)), fate);
}

TEST(HasNative, IsTheSameOnAllRanksAndLeftOnlyWhereARuleNeedsSingleMessages) {
  const auto natives = [](const Rule& r, const Op& op) {
    Bench bench({r});
    std::set<bool> answers;
    for (int rank = 0; rank < 4; ++rank) {
      Op ours = op;
      ours.rank = rank;
      answers.insert(bench.seams[std::size_t(rank)].transport.has_native(Comm{1}, ours));
    }
    EXPECT_EQ(answers.size(), 1u) << text(r);
    return *answers.begin();
  };
  Rule drop = rule(FaultKind::message_drop);
  drop.when.rank = 0;
  drop.when.peer = 3;
  drop.when.step = 5;
  drop.when.call = 4;
  EXPECT_FALSE(natives(drop, reduction(0, 5)));
  EXPECT_TRUE(natives(drop, reduction(0, 4)));
  Rule crash = rule(FaultKind::rank_crash);
  crash.when.rank = 2;
  EXPECT_TRUE(natives(crash, reduction(0, 5))) << "before an operation";
  crash.mode = Mode::during;
  EXPECT_FALSE(natives(crash, reduction(0, 5)));
  crash.mode = Mode::after;
  EXPECT_FALSE(natives(crash, reduction(0, 5)));
  Rule cut = link(FaultKind::link_drop, 0, 1);
  cut.when.step = 5;
  EXPECT_FALSE(natives(cut, reduction(0, 9))) << "a link stays cut";
  Rule hang = rule(FaultKind::collective_timeout);
  hang.when.rank = 1;
  EXPECT_TRUE(natives(hang, reduction(0, 5)));
  hang.when.op = OpKind::all_gather;
  EXPECT_FALSE(natives(hang, reduction(0, 5))) << "a native sum has no second half to hang in";
  drop.when.op = OpKind::all_gather;
  EXPECT_FALSE(natives(drop, reduction(0, 5)));
}

}  // namespace seeksim::faults::test
