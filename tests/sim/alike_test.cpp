// Worlds in which ranks stand for each other, and what ends them. That such a world of training is the same as rank by
// rank is held by tests/harness/simulate/classes_test.cpp.
#include "tests/sim/sim_test.h"

namespace seeksim::sim {
namespace {

using runtime::Agreement;
using runtime::Ballot;

WorldPlan steady_world(int nodes, int per_node) {
  WorldPlan plan = small_world(per_node);
  plan.nodes = nodes;
  plan.steady = plan.shapes = true;
  return plan;
}

// Ranks 0 and `last` are simulated; the first stands for all but the last.
std::shared_ptr<const RankClasses> all_alike(int ranks, bool twins = true) {
  auto classes = std::make_shared<RankClasses>();
  classes->count = 1;
  classes->stand_in.assign(std::size_t(ranks), 0);
  classes->weight.assign(std::size_t(ranks), 0);
  classes->weight.front() = ranks - 1;
  classes->stand_in.back() = ranks - 1;
  classes->weight.back() = 1;
  classes->simulated = {0, ranks - 1};
  if (twins) classes->twins = {{0, ranks - 1}};
  return classes;
}

// Each rank sends `elements` to all others, `rounds` times.
void gather(Rank& rank, std::size_t elements, int rounds) {
  const Comm comm = make_comm(rank);
  const BufferPtr own = rank.device.allocate(elements * sizeof(float), MemoryTag::scratch, "own");
  const BufferPtr all = rank.device.allocate(elements * sizeof(float), MemoryTag::scratch, "all");
  for (int round = 1; round <= rounds; ++round) {
    std::vector<Piece> pieces;
    for (int peer = 0; peer < rank.world_size; ++peer) {
      if (peer == rank.id) continue;
      pieces.push_back(send_to(peer, own, 0, elements));
      pieces.push_back(receive_from(peer, all, 0, elements));
    }
    const Op op = op_of(rank, OpKind::all_gather, std::uint64_t(round));
    rank.wait(exchange(rank, comm, op, pieces), op, kSecond, comm);
  }
}

TEST(Steady, AGatherOfEqualShardsTakesWhatAnExchangeTakes) {
  for (const int nodes : {1, 2, 3}) {
    for (const std::size_t elements : {1, 5000, 300'000}) {
      WorldPlan plan = steady_world(nodes, 4);
      const auto time = [&](bool native) {
        plan.native_gathers = native;
        const WorldResult result = World(plan).run([&](Rank& rank) { gather(rank, elements, 3); });
        EXPECT_TRUE(all_returned(result));
        return result.virtual_ns;
      };
      EXPECT_EQ(time(true), time(false)) << nodes << " nodes, " << elements;
    }
  }
}

TEST(Steady, NothingIsDrawn) {
  WorldPlan plan = steady_world(2, 3);
  std::vector<std::vector<std::uint64_t>> courses;
  for (const std::uint64_t seed : {1, 2, 3}) {
    plan.seed = seed;
    courses.push_back(World(plan)
                          .run([](Rank& rank) {
                            gather(rank, 1000, 2);
                            rank.control.agree(op_of(rank, OpKind::vote, 1), 0, Ballot{}, kSecond);
                          })
                          .courses);
  }
  EXPECT_EQ(courses[0], courses[1]);
  EXPECT_EQ(courses[0], courses[2]);
}

TEST(StandIns, AreTheWorldOfAllRanks) {
  WorldPlan plan = steady_world(4, 4);
  const auto body = [](Rank& rank) {
    gather(rank, 5000, 3);
    Ballot ballot;
    ballot.words[0] = 7;
    const Agreement a = rank.control.agree(op_of(rank, OpKind::vote, 1), 0, ballot, kSecond);
    EXPECT_EQ(a.members, everybody(rank));
    ASSERT_EQ(a.ballots.size(), 16U);
    for (const Ballot& other : a.ballots) EXPECT_EQ(other.words[0], 7);
  };
  const WorldResult each = World(plan).run(body);
  plan.classes = all_alike(16);
  const WorldResult classes = World(plan).run(body);
  EXPECT_TRUE(all_returned(classes));
  EXPECT_EQ(classes.told_apart, "");
  EXPECT_EQ(each.virtual_ns, classes.virtual_ns);
  EXPECT_EQ(each.courses, classes.courses);
  EXPECT_EQ(each.collectives_compared, classes.collectives_compared);
  for (std::size_t kind = 0; kind < each.comm.size(); ++kind)
    EXPECT_EQ(each.comm[kind].calls, classes.comm[kind].calls);
}

// Whoever says that these ranks are alike is wrong.
TEST(StandIns, TwinsThatDifferAreSeen) {
  WorldPlan plan = steady_world(2, 4);
  plan.classes = all_alike(8);
  const WorldResult result = World(plan).run([](Rank& rank) {
    const BufferPtr more = rank.device.allocate(rank.id == 7 ? 8 : 4, MemoryTag::scratch, "more");
    gather(rank, 100, 1);
  });
  EXPECT_EQ(result.told_apart, "ranks 0 and 7 did not do the same");
}

TEST(StandIns, WhatAClassCannotDoEndsTheWorld) {
  WorldPlan plan = steady_world(2, 4);
  plan.classes = all_alike(8);
  const WorldResult single = World(plan).run([](Rank& rank) {
    const Comm comm = make_comm(rank);
    const BufferPtr b = rank.device.allocate(4, MemoryTag::scratch, "test");
    const Op op = op_of(rank, OpKind::send, 1);
    rank.wait(exchange(rank, comm, op, {send_to((rank.id + 1) % 8, b, 0, 1)}), op, kSecond, comm);
  });
  EXPECT_NE(single.told_apart.find("single messages"), std::string::npos) << single.told_apart;
  const WorldResult revoked = World(plan).run([](Rank& rank) {
    if (rank.id == 7) rank.control.revoke(0, op_of(rank, OpKind::vote, 1), ErrorKind::timeout);
    rank.control.agree(op_of(rank, OpKind::vote, 1), 0, Ballot{}, kSecond);
  });
  EXPECT_NE(revoked.told_apart.find("revokes"), std::string::npos) << revoked.told_apart;
  const WorldResult silent = World(plan).run([](Rank& rank) {
    if (rank.id == 0) rank.control.agree(op_of(rank, OpKind::vote, 1), 0, Ballot{}, kSecond);
  });
  EXPECT_NE(silent.told_apart.find("deadline"), std::string::npos) << silent.told_apart;
}

}  // namespace
}  // namespace seeksim::sim
