// Coming into a run that is under way: spares, processes that are started again, ranks that were declared dead.
#include "tests/sim/sim_test.h"

namespace seeksim::sim {
namespace {

using runtime::Agreement;
using runtime::TakenIn;

Op join_op(Rank& rank) { return op_of(rank, OpKind::join, 0); }

TEST(Join, ASpareIsSeenWhileItWaitsAndTakenInByAnEpochThatNamesIt) {
  WorldPlan plan = small_world(4);
  plan.spares = 1;
  World world(plan);
  const WorldResult result = world.run([](Rank& rank) {
    if (rank.id == 3) {
      const TakenIn in = rank.control.join(join_op(rank), runtime::kForever);
      EXPECT_EQ(in.epoch, 1u);
      EXPECT_EQ(in.members, (std::vector<int>{0, 1, 3}));
      EXPECT_EQ(rank.control.epoch(), 1u);
      EXPECT_TRUE(bool(make_comm(rank, in.members, 7, 1, rank.clock.now() + kSecond)));
      return;
    }
    EXPECT_EQ(rank.control.members(), (std::vector<int>{0, 1, 2})) << "a spare is no member";
    rank.clock.sleep_until(kSecond);
    const Agreement a = rank.control.agree(op_of(rank, OpKind::vote, 0), 0, {}, rank.clock.now() + kSecond);
    EXPECT_EQ(a.members, (std::vector<int>{0, 1, 2}));
    EXPECT_EQ(a.joiners, (std::vector<int>{3}));
    if (rank.id == 2) return;
    rank.control.enter_epoch(1, std::vector<int>{0, 1, 3});
    EXPECT_TRUE(bool(make_comm(rank, {0, 1, 3}, 7, 1, rank.clock.now() + kSecond)));
  });
  EXPECT_TRUE(all_returned(result));
}

TEST(Join, WhoWaitsWhenAllMembersHaveEndedHearsThatTheRunIsOver) {
  WorldPlan plan = small_world(3);
  plan.spares = 2;
  World world(plan);
  int over = 0;
  const WorldResult result = world.run([&](Rank& rank) {
    rank.clock.sleep_until(rank.id * kSecond);  // one of them comes after the end
    if (rank.id == 0) return rank.clock.sleep_until(kSecond + kSecond / 2);
    over += failure_of([&] { rank.control.join(join_op(rank), runtime::kForever); }) == ErrorKind::no_progress;
  });
  EXPECT_TRUE(all_returned(result));
  EXPECT_EQ(over, 2);
}

TEST(Join, WhoeverOnlyWaitsDoesNotKeepAWorldAliveThatHangs) {
  WorldPlan plan = small_world(3);
  plan.spares = 1;
  World world(plan);
  const WorldResult result = world.run([&](Rank& rank) {
    if (rank.id == 0) rank.clock.sleep_until(runtime::kForever);
    if (rank.id == 1) return;
    EXPECT_EQ(failure_of([&] { rank.control.join(join_op(rank), runtime::kForever); }), ErrorKind::no_progress);
  });
  EXPECT_EQ(result.end, WorldEnd::finished);
}

TEST(Join, GivesUpAtItsDeadline) {
  WorldPlan plan = small_world(2);
  plan.spares = 1;
  World world(plan);
  const WorldResult result = world.run([&](Rank& rank) {
    if (rank.id == 0) {
      rank.clock.sleep_until(3 * kSecond);
      EXPECT_TRUE(rank.control.agree(op_of(rank, OpKind::vote, 0), 0, {}, 4 * kSecond).joiners.empty());
    } else {
      EXPECT_EQ(failure_of([&] { rank.control.join(join_op(rank), 2 * kSecond); }), ErrorKind::timeout);
    }
  });
  EXPECT_TRUE(all_returned(result));
}

TEST(Join, AProcessThatIsStartedAgainRemembersNothingAndComesIn) {
  WorldPlan plan = small_world(3);
  plan.network = "ib";  // what 30 s later is noticed of the first life must not touch the second
  World world(plan);
  world.kill_at(1, kSecond, [] {});
  world.revive_at(1, 5 * kSecond);
  int lives = 0;
  const WorldResult result = world.run([&](Rank& rank) {
    if (rank.id == 1) {
      EXPECT_EQ(rank.incarnation, lives++);
      EXPECT_EQ(rank.device.use_total(runtime::Space::device).now, 0u);
      if (rank.incarnation == 0) {
        const BufferPtr memory = rank.device.allocate(64, runtime::MemoryTag::scratch, "memory");
        rank.clock.sleep_until(60 * kSecond);
        ADD_FAILURE() << "it was killed";
      }
      const TakenIn in = rank.control.join(join_op(rank), runtime::kForever);
      EXPECT_EQ(in.members, everybody(rank));
    } else {
      const Agreement a = rank.control.agree(op_of(rank, OpKind::agree, 0), 0, {}, 10 * kSecond);
      EXPECT_EQ(a.dead, std::vector<int>{1});
      EXPECT_EQ(a.joiners, std::vector<int>{1});
      rank.control.enter_epoch(1, everybody(rank));
    }
    rank.clock.sleep_until(60 * kSecond);
    const Agreement a = rank.control.agree(op_of(rank, OpKind::vote, 1), 1, {}, 90 * kSecond);
    EXPECT_EQ(a.members, everybody(rank));
  });
  EXPECT_TRUE(all_returned(result));
  EXPECT_EQ(lives, 2);
}

// The others would take it for the one that still remembers.
TEST(Join, ABallotOfALifeBeforeDoesNotCount) {
  World world(small_world(3));
  world.kill_at(1, kSecond, [] {});
  world.revive_at(1, 2 * kSecond);
  const WorldResult result = world.run([&](Rank& rank) {
    if (rank.incarnation > 0) {
      EXPECT_EQ(rank.control.join(join_op(rank), runtime::kForever).epoch, 1u);
      return;
    }
    rank.clock.sleep_until(rank.id == 2 ? 3 * kSecond : 0);
    const Agreement a = rank.control.agree(op_of(rank, OpKind::agree, 0), 0, {}, 5 * kSecond);
    EXPECT_EQ(a.members, (std::vector<int>{0, 2}));
    EXPECT_EQ(a.dead, std::vector<int>{1});
    EXPECT_EQ(a.joiners, std::vector<int>{1});
    rank.control.enter_epoch(1, everybody(rank));
  });
  EXPECT_TRUE(all_returned(result));
}

// A rank that waits only since the agreement is not the one that it names.
TEST(Join, WhoComesBackAfterTheAgreementIsNotTakenForWhoVoted) {
  World world(small_world(2));
  world.kill_at(1, 2 * kSecond, [] {});
  world.revive_at(1, 3 * kSecond);
  const WorldResult result = world.run([&](Rank& rank) {
    if (rank.incarnation > 0) {
      EXPECT_EQ(rank.control.join(join_op(rank), runtime::kForever).epoch, 2u);
      return;
    }
    EXPECT_EQ(rank.control.agree(op_of(rank, OpKind::agree, 0), 0, {}, kSecond).members, everybody(rank));
    rank.clock.sleep_until(4 * kSecond);
    rank.control.enter_epoch(1, everybody(rank));
    const Agreement a = rank.control.agree(op_of(rank, OpKind::agree, 1), 1, {}, 9 * kSecond);
    EXPECT_EQ(a.dead, std::vector<int>{1});
    EXPECT_EQ(a.joiners, std::vector<int>{1});
    rank.control.enter_epoch(2, everybody(rank));
  });
  EXPECT_TRUE(all_returned(result));
}

TEST(Join, WhoWasDeclaredDeadComesInAsAnother) {
  World world(small_world(3));
  const WorldResult result = world.run([&](Rank& rank) {
    if (rank.id == 2) {
      rank.clock.sleep_until(3 * kSecond);
      EXPECT_EQ(failure_of([&] { rank.control.agree(op_of(rank, OpKind::agree, 0), 0, {}, 4 * kSecond); }),
                ErrorKind::fenced);
      EXPECT_EQ(rank.control.join(join_op(rank), runtime::kForever).epoch, 2u);
    } else {
      EXPECT_EQ(rank.control.agree(op_of(rank, OpKind::agree, 0), 0, {}, kSecond).dead, std::vector<int>{2});
      rank.control.enter_epoch(1, std::vector<int>{0, 1});
      rank.clock.sleep_until(4 * kSecond);
      const Agreement a = rank.control.agree(op_of(rank, OpKind::vote, 1), 1, {}, 5 * kSecond);
      EXPECT_EQ(a.joiners, std::vector<int>{2});
      rank.control.enter_epoch(2, everybody(rank));
    }
    EXPECT_EQ(rank.control.agree(op_of(rank, OpKind::vote, 2), 2, {}, 9 * kSecond).members, everybody(rank));
  });
  EXPECT_TRUE(all_returned(result));
}

TEST(Join, NobodyIsStartedAgainAfterTheEnd) {
  World world(small_world(3));
  world.kill_at(1, kSecond, [] {});
  world.revive_at(1, 5 * kSecond);
  int lives = 0;
  const WorldResult result = world.run([&](Rank& rank) {
    lives += rank.id == 1;
    rank.clock.sleep_until(2 * kSecond);
  });
  EXPECT_EQ(result.ranks[1].how, RankEnd::How::died);
  EXPECT_EQ(lives, 1);
}

}  // namespace
}  // namespace seeksim::sim
