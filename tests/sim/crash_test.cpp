// A rank that dies in, after or outside of an exchange: which ranks are served, which hear of it, and when.
#include "sim/core.h"
#include "tests/sim/sim_test.h"

namespace seeksim::sim {
namespace {

using runtime::DiesAt;

// Rank 0 sends to all others and dies as asked. Returns how many of them got their message.
int survivors_served(DiesAt dies, std::uint64_t seed, const std::string& network, ErrorKind* others = nullptr) {
  World world(spread_world(6, seed, network));
  int served = 0;
  const WorldResult result = world.run([&](Rank& rank) {
    const Comm comm = make_comm(rank);
    BufferPtr b = floats(rank, 1, float(rank.id));
    const Op op = op_of(rank, OpKind::broadcast, 1);
    if (rank.id == 0) {
      std::vector<Piece> pieces;
      for (int i = 1; i < 6; ++i) pieces.push_back(send_to(i, b, 0, 1));
      rank.wait(exchange(rank, comm, op, pieces, dies), op, runtime::kForever, comm);
      ADD_FAILURE() << "rank 0 outlived its death";
    }
    const Event done = exchange(rank, comm, op, {receive_from(0, b, 0, 1)});
    const ErrorKind failure = failure_of([&] { rank.wait(done, op, 120 * kSecond, comm); });
    if (failure == ErrorKind::count_) {
      ++served;
      EXPECT_EQ(at(b, 0), 0.0f);
    } else if (others != nullptr) {
      *others = failure;
    }
    const Comm comms[] = {comm};
    rank.transport.abort(comms);
  });
  EXPECT_EQ(result.end, WorldEnd::finished) << result.wait_for_graph;
  EXPECT_EQ(result.ranks[0].how, RankEnd::How::died);
  return served;
}

// That is this machine's trouble, and none of the ranks'.
TEST(Crash, OfTheMachineForWantOfMemoryEndsTheWorld) {
  World world(spread_world(4));
  try {
    world.run([](Rank& rank) {
      if (rank.id == 2) throw std::bad_alloc();
      const Comm comm = make_comm(rank);
      const Op op = op_of(rank, OpKind::broadcast, 1);
      rank.wait(exchange(rank, comm, op, {receive_from(2, floats(rank, 1), 0, 1)}), op, runtime::kForever, comm);
    });
    ADD_FAILURE() << "it went on";
  } catch (const OutOfMachineMemory& error) {
    EXPECT_STREQ(error.what(), "this machine ran out of memory when rank 2 of 4 asked for more");
  }
}

TEST(Crash, InFlightSomeAreServedAndNeverAll) {
  std::vector<int> seen(6);
  for (std::uint64_t seed = 1; seed <= 100; ++seed)
    ++seen[std::size_t(survivors_served(DiesAt::in_flight, seed, "ib"))];
  for (int served = 0; served < 5; ++served) EXPECT_GT(seen[std::size_t(served)], 5) << served;
  EXPECT_EQ(seen[5], 0);
}

TEST(Crash, AfterTheExchangeAllAreServed) { EXPECT_EQ(survivors_served(DiesAt::after, 1, "ib"), 5); }

TEST(Crash, IsNoticedByNeighboursAsTheNetworkDoes) {
  ErrorKind ib = ErrorKind::count_, tcp = ErrorKind::count_, nvlink = ErrorKind::count_;
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    survivors_served(DiesAt::in_flight, seed, "ib", &ib);
    survivors_served(DiesAt::in_flight, seed, "tcp", &tcp);
    survivors_served(DiesAt::in_flight, seed, "nvlink", &nvlink);
  }
  EXPECT_EQ(ib, ErrorKind::remote_error);
  EXPECT_EQ(tcp, ErrorKind::remote_error);
  EXPECT_EQ(nvlink, ErrorKind::timeout);
}

TEST(Crash, WhoPostsLaterIsToldAtOnce) {
  World world(spread_world(2, 1, "tcp"));
  world.kill_at(0, kSecond, nullptr);
  const WorldResult result = world.run([&](Rank& rank) {
    const Comm comm = make_comm(rank);
    BufferPtr b = floats(rank, 1);
    rank.clock.sleep_until(5 * kSecond);
    const Op op = op_of(rank, OpKind::send, 1);
    const Event done = exchange(rank, comm, op, {receive_from(0, b, 0, 1)});
    EXPECT_EQ(failure_of([&] { rank.wait(done, op, 600 * kSecond, comm); }), ErrorKind::remote_error);
    EXPECT_EQ(rank.clock.now(), 5 * kSecond);
  });
  EXPECT_EQ(result.ranks[1].how, RankEnd::How::returned) << result.ranks[1].what;
}

TEST(Crash, OfTheMachineNamesTheRankThatWasFirst) {
  World world(spread_world(2));
  try {
    world.run([](Rank& rank) {
      if (rank.id == 0) {
        rank.clock.sleep_until(1);  // the other one is under way by then
        throw std::bad_alloc();
      }
      try {
        rank.clock.sleep_until(kSecond);
      } catch (const runtime::RankDied&) {  // the world ends, and there is no memory for that either
        throw std::bad_alloc();
      }
    });
    ADD_FAILURE() << "it went on";
  } catch (const OutOfMachineMemory& error) {
    EXPECT_STREQ(error.what(), "this machine ran out of memory when rank 0 of 2 asked for more");
  }
}

TEST(Crash, OfEverybodyIsNoDeadlock) {
  World world(small_world(2));
  const WorldResult result = world.run([](Rank& rank) { rank.clock.sleep_until(runtime::kForever); });
  EXPECT_EQ(result.end, WorldEnd::finished) << result.wait_for_graph;
}

}  // namespace
}  // namespace seeksim::sim
