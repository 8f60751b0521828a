// A control plane that some do not reach or that stands still, messages that arrive twice, and a device that never
// answers.
#include <algorithm>

#include "tests/sim/sim_test.h"

namespace seeksim::sim {
namespace {

using runtime::Agreement;

// What each of two ranks comes to know of a vote that both cast at 10 ms with a minute's patience, and when.
struct Votes {
  ErrorKind failure[2] = {ErrorKind::count_, ErrorKind::count_};
  std::size_t members[2] = {0, 0};
  runtime::TimeNs at_ns[2] = {0, 0};
};
Votes vote_under(const ControlOutage& outage) {
  Votes votes;
  World world(small_world(2));
  int begun = 0;
  world.control_outage(outage, [&] { ++begun; });
  const WorldResult result = world.run([&](Rank& rank) {
    rank.clock.sleep_until(10 * runtime::kMillisecond);
    const Op op = op_of(rank, OpKind::vote, 1);
    votes.failure[rank.id] = failure_of([&] {
      const Agreement a = rank.control.agree(op, 0, {}, rank.clock.now() + 60 * kSecond);
      votes.members[rank.id] = a.members.size();
    });
    votes.at_ns[rank.id] = rank.clock.now();
  });
  EXPECT_TRUE(all_returned(result));
  EXPECT_EQ(begun, 1);
  return votes;
}

TEST(ControlOutage, WhoIsCutOffIsDeclaredDeadByTheOthersAndKnowsThatItKnowsNothing) {
  const Votes votes = vote_under({{1}, 5 * runtime::kMillisecond, runtime::kForever, false, {}});
  EXPECT_EQ(votes.failure[0], ErrorKind::count_);
  EXPECT_EQ(votes.members[0], 1u);
  EXPECT_EQ(votes.failure[1], ErrorKind::fenced);
  EXPECT_EQ(votes.members[1], 0u) << "it must not take its own word for the vote's answer";
  EXPECT_GT(votes.at_ns[1], votes.at_ns[0]);
}

TEST(ControlOutage, OneThatIsOverInTimeCostsOnlyTime) {
  const Votes votes = vote_under({{1}, 5 * runtime::kMillisecond, 20 * kSecond, false, {}});
  for (int rank : {0, 1}) {
    EXPECT_EQ(votes.failure[rank], ErrorKind::count_);
    EXPECT_EQ(votes.members[rank], 2u);
    EXPECT_NEAR(double(votes.at_ns[rank]), 20e9, 1e7);
  }
}

TEST(ControlOutage, ACentreThatStoodStillGivesEverybodyTimeToBeHeard) {
  const Votes votes = vote_under({{}, 5 * runtime::kMillisecond, 59 * kSecond, true, {}});
  for (int rank : {0, 1}) EXPECT_EQ(votes.members[rank], 2u);
}

TEST(ControlOutage, ACentreThatIsGoneAnswersNobody) {
  const Votes votes = vote_under({{}, 5 * runtime::kMillisecond, runtime::kForever, true, {}});
  for (int rank : {0, 1}) {
    EXPECT_EQ(votes.failure[rank], ErrorKind::fenced);
    EXPECT_EQ(votes.members[rank], 0u);
  }
}

// The control plane is split with the world: which of these ranks are answered.
std::vector<int> answered(const std::vector<int>& side, const std::vector<int>& other) {
  ControlOutage outage;
  outage.ranks = side;
  outage.others = other;
  outage.from = 5 * runtime::kMillisecond;
  std::vector<int> ranks;
  World world(small_world(int(side.size() + other.size())));
  world.control_outage(outage, {});
  const WorldResult result = world.run([&](Rank& rank) {
    rank.clock.sleep_until(10 * runtime::kMillisecond);
    const ErrorKind failure =
        failure_of([&] { rank.control.agree(op_of(rank, OpKind::vote, 1), 0, {}, rank.clock.now() + kSecond); });
    if (failure == ErrorKind::count_) ranks.push_back(rank.id);
  });
  EXPECT_TRUE(all_returned(result));
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

TEST(SplitControlPlane, AnswersTheSideWithAQuorum) {
  using Ranks = std::vector<int>;
  EXPECT_EQ(answered({0}, {1, 2}), (Ranks{1, 2})) << "more than half";
  EXPECT_EQ(answered({1, 2}, {0}), (Ranks{1, 2})) << "whichever is told first";
  EXPECT_EQ(answered({0, 3}, {1, 2}), (Ranks{0, 3})) << "half of them, with the lowest";
  EXPECT_EQ(answered({1, 2}, {0, 3}), (Ranks{0, 3}));
  EXPECT_EQ(answered({0, 1}, {2, 3, 4}), (Ranks{2, 3, 4})) << "the lowest alone is not enough";
}

// Those who have been put out before count no more.
TEST(SplitControlPlane, CountsTheNewestMembers) {
  ControlOutage outage;
  outage.ranks = {0, 1};
  outage.others = {2, 3, 4};
  outage.from = 5 * runtime::kMillisecond;
  std::vector<int> ranks;
  World world(small_world(5));
  world.control_outage(outage, {});
  world.run([&](Rank& rank) {
    if (rank.id >= 3) return;
    rank.control.enter_epoch(1, std::vector<int>{0, 1, 2});
    rank.clock.sleep_until(10 * runtime::kMillisecond);
    Op op = op_of(rank, OpKind::vote, 1);
    op.epoch = 1;
    const ErrorKind failure = failure_of([&] { rank.control.agree(op, 1, {}, rank.clock.now() + kSecond); });
    if (failure == ErrorKind::count_) ranks.push_back(rank.id);
  });
  std::sort(ranks.begin(), ranks.end());
  EXPECT_EQ(ranks, (std::vector<int>{0, 1}));
}

// Rank 0 sends 1.0f, which arrives again 1 ms later, then, after 2 ms, 2.0f. What rank 1 has in the end.
std::uint32_t second_message(bool stale_taken) {
  WorldPlan plan = spread_world(2, 1, "ib");
  plan.stale_messages_taken = stale_taken;
  PieceFate fate;
  fate.replay_ns = runtime::kMillisecond;
  std::uint32_t got = 0;
  World world(plan);
  const WorldResult result = world.run([&](Rank& rank) {
    const Comm comm = make_comm(rank);
    for (int i = 1; i <= 2; ++i) {
      BufferPtr b = floats(rank, 1, rank.id == 0 ? float(i) : 0.0f);
      const Op op = op_of(rank, OpKind::send, std::uint64_t(i));
      const PieceFate* own = i == 1 ? &fate : nullptr;
      const Event done = exchange(rank, comm, op, {rank.id == 0 ? send_to(1, b, 0, 1, own) : receive_from(0, b, 0, 1)});
      rank.wait(done, op, kSecond, comm);
      if (rank.id == 1) got = word(b, 0);
      rank.clock.sleep_until(rank.clock.now() + 2 * runtime::kMillisecond);
    }
  });
  EXPECT_TRUE(all_returned(result));
  return got;
}

TEST(Zombie, IsDroppedByItsNumber) { EXPECT_EQ(second_message(false), 0x40000000u); }
TEST(Zombie, WithoutTheFenceItIsTakenForTheNextMessage) { EXPECT_EQ(second_message(true), 0x3f800000u); }

constexpr runtime::TimeNs kYear = 365LL * 24 * 3600 * kSecond;

TEST(Drain, EndsAtItsDeadlineWhereALaunchDoesNot) {
  World world(small_world(1));
  bool first = true, later = false;
  const WorldResult result = world.run([&](Rank& rank) {
    // One that takes a year: flops are what the model makes time of.
    const double flops = DeviceModel{}.flops_per_ns * double(kYear);
    rank.device.compute_queue().enqueue_kernel(op_of(rank, OpKind::compute, 1), {flops, 0}, runtime::Closure([] {}),
                                               {});
    first = rank.device.drain_by(rank.clock.now() + 90 * kSecond, true);
    EXPECT_NEAR(double(rank.clock.now()), 90e9, 1e6);
    later = rank.device.drain_by(2 * kYear, true);
  });
  EXPECT_TRUE(all_returned(result));
  EXPECT_FALSE(first);
  EXPECT_TRUE(later) << "it was only slow";
}

// Ranks 0 and 2 each send rank 1 two messages, and the first of `stale` arrives a second time: it takes the place of
// its own sender's next.
TEST(Zombie, IsTakenForTheNextMessageOfItsSenderOnly) {
  for (const int stale : {0, 2}) {
    WorldPlan plan = spread_world(3, 1, "ib");
    plan.stale_messages_taken = true;
    PieceFate fate;
    fate.replay_ns = runtime::kMillisecond;
    World world(plan);
    const WorldResult result = world.run([&](Rank& rank) {
      const Comm comm = make_comm(rank);
      for (int i = 1; i <= 2; ++i) {
        BufferPtr b = floats(rank, 2, float(10 * rank.id + i));
        const Op op = op_of(rank, OpKind::send, std::uint64_t(i));
        const PieceFate* const own = i == 1 && rank.id == stale ? &fate : nullptr;
        const Event done = rank.id == 1 ? exchange(rank, comm, op, {receive_from(2, b, 0, 1), receive_from(0, b, 1, 1)})
                                        : exchange(rank, comm, op, {send_to(1, b, 0, 1, own)});
        rank.wait(done, op, kSecond, comm);
        if (rank.id == 1) {
          EXPECT_EQ(at(b, 0), float(20 + (stale == 2 ? 1 : i)));
          EXPECT_EQ(at(b, 1), float(stale == 0 ? 1 : i));
        }
        rank.clock.sleep_until(rank.clock.now() + 2 * runtime::kMillisecond);
      }
    });
    EXPECT_TRUE(all_returned(result));
  }
}

// A vote that a revoke cut short is over: who waits for something else is not said to wait for it.
TEST(ControlOutage, AVoteThatWasCutShortIsWaitedForNoMore) {
  World world(small_world(2));
  const WorldResult result = world.run([](Rank& rank) {
    if (rank.id == 1) {
      rank.clock.sleep_until(kSecond);
      rank.control.revoke(0, op_of(rank, OpKind::send, 1), ErrorKind::timeout);
      return rank.clock.sleep_until(runtime::kForever);
    }
    EXPECT_EQ(failure_of([&] { rank.control.agree(op_of(rank, OpKind::vote, 1), 0, {}, 100 * kSecond); }),
              ErrorKind::revoked);
    failure_of([&] { rank.control.agree(op_of(rank, OpKind::agree, 1), 0, {}, 50 * kSecond); });
  });
  EXPECT_NE(result.wait_for_graph.find("agree of epoch 0 waits for rank 1"), std::string::npos)
      << result.wait_for_graph;
  EXPECT_EQ(result.wait_for_graph.find("vote of epoch 0"), std::string::npos) << result.wait_for_graph;
}

}  // namespace
}  // namespace seeksim::sim
