// The loop: what the seed decides, what it does not, how time passes and how a world ends.
#include <alloca.h>

#include "tests/sim/sim_test.h"

namespace seeksim::sim {
namespace {

// Eight ranks that compute for different times, exchange round a ring and sleep now and then.
std::uint64_t busy_run(std::uint64_t seed, std::vector<int>* order = nullptr) {
  World world(small_world(8, seed));
  const WorldResult result = world.run([&](Rank& rank) {
    const Comm comm = make_comm(rank);
    BufferPtr b = floats(rank, 2, float(rank.id));
    for (std::uint64_t i = 1; i <= 20; ++i) {
      rank.device.compute_queue().launch(
          op_of(rank, OpKind::compute, i), {1e6, 0}, [](kernels::Lane, kernels::Vec<float> v) { v[0] += 1; },
          vec<float>(*b));
      rank.device.communication_queue().wait(rank.device.compute_queue().record());
      const Op op = op_of(rank, OpKind::all_gather, i);
      rank.wait(
          exchange(rank, comm, op, {send_to((rank.id + 1) % 8, b, 0, 1), receive_from((rank.id + 7) % 8, b, 1, 1)}), op,
          kSecond, comm);
      if (order != nullptr) order->push_back(rank.id);
    }
    rank.recorder.mix(op_of(rank, OpKind::compute, 0), word(b, 1));
  });
  EXPECT_TRUE(all_returned(result));
  return result.fingerprint;
}

TEST(Schedule, TheSameSeedGivesTheSameRun) {
  std::vector<int> first, second;
  EXPECT_EQ(busy_run(7, &first), busy_run(7, &second));
  EXPECT_EQ(first, second);
}

TEST(Schedule, AnotherSeedGivesAnotherOrder) {
  std::vector<int> first, second;
  EXPECT_NE(busy_run(7, &first), busy_run(8, &second));
  EXPECT_NE(first, second);
}

TEST(Schedule, TheSeedDecidesWhoRunsFirst) {
  std::vector<int> starts(4);
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    int first = -1;
    World world(small_world(4, seed));
    world.run([&](Rank& rank) {
      if (first < 0) first = rank.id;
    });
    ++starts[std::size_t(first)];
  }
  for (const int count : starts) EXPECT_GT(count, 20);
}

TEST(Schedule, ManyWorldsRunOneAfterAnother) {
  for (int i = 0; i < 50; ++i) EXPECT_EQ(busy_run(3), busy_run(3));
}

TEST(Clock, PassesOnlyWhenNothingCanRun) {
  World world(small_world(3));
  std::vector<runtime::TimeNs> woke(3);
  const WorldResult result = world.run([&](Rank& rank) {
    EXPECT_EQ(rank.clock.now(), 0);
    rank.clock.sleep_until(kSecond * (rank.id + 1));
    woke[std::size_t(rank.id)] = rank.clock.now();
    rank.clock.sleep_until(5);  // in the past
    EXPECT_EQ(rank.clock.now(), woke[std::size_t(rank.id)]);
  });
  EXPECT_TRUE(all_returned(result));
  EXPECT_EQ(woke, (std::vector<runtime::TimeNs>{kSecond, 2 * kSecond, 3 * kSecond}));
  EXPECT_EQ(result.virtual_ns, 3 * kSecond);
}

TEST(Clock, AWaitThatIsOverLeavesNoTraceInTime) {
  World world(small_world(1));
  const WorldResult result = world.run([&](Rank& rank) {
    BufferPtr b = floats(rank, 1);
    for (std::uint64_t i = 1; i <= 100; ++i) {  // each with a watchdog that never fires
      rank.device.compute_queue().launch(op_of(rank, OpKind::compute, i), {50e6, 0}, [](kernels::Lane) {});
      rank.wait(rank.device.compute_queue().record(), op_of(rank, OpKind::compute, i), 600 * kSecond, {});
    }
  });
  EXPECT_TRUE(all_returned(result));
  EXPECT_LT(result.virtual_ns, kSecond);
}

TEST(Clock, ShorterDeadlinesAfterLongerOnesFireInTime) {
  World world(small_world(1));
  world.run([&](Rank& rank) {
    const Comm comm = make_comm(rank);
    BufferPtr b = floats(rank, 2);
    rank.device.compute_queue().launch(op_of(rank, OpKind::compute, 1), {50e6, 0}, [](kernels::Lane) {});
    const Op op = op_of(rank, OpKind::compute, 1);
    rank.wait(rank.device.compute_queue().record(), op, 100 * kSecond, comm);
    // Never done: a kernel of an hour.
    rank.device.compute_queue().launch(op, {50e3 * 3600e9, 0}, [](kernels::Lane) {});
    const Event late = rank.device.compute_queue().record();
    for (const runtime::TimeNs timeout : {50 * kSecond, 5 * kSecond, 200 * kSecond}) {
      const runtime::TimeNs before = rank.clock.now();
      EXPECT_EQ(failure_of([&] { rank.wait(late, op, timeout, comm); }), ErrorKind::timeout);
      EXPECT_EQ(rank.clock.now(), before + timeout);
    }
  });
}

TEST(Deadlock, IsFoundAtOnceAndSaysWhoWaitsForWhom) {
  World world(small_world(2));
  const WorldResult result = world.run([&](Rank& rank) {
    const Comm comm = make_comm(rank);
    BufferPtr b = floats(rank, 2);
    if (rank.id == 0) {
      const Op op = op_of(rank, OpKind::recv, 1);
      rank.wait(exchange(rank, comm, op, {receive_from(1, b, 0, 1)}), op, runtime::kForever, comm);
    } else {
      const Op op = op_of(rank, OpKind::recv, 2);
      rank.wait(exchange(rank, comm, op, {receive_from(0, b, 0, 1)}), op, runtime::kForever, comm);
    }
  });
  EXPECT_EQ(result.end, WorldEnd::deadlock);
  EXPECT_NE(result.wait_for_graph.find("rank 0: communication queue: recv #1"), std::string::npos)
      << result.wait_for_graph;
  EXPECT_NE(result.wait_for_graph.find("waits for rank 1 (its message)"), std::string::npos) << result.wait_for_graph;
  EXPECT_NE(result.wait_for_graph.find("waits for rank 0 (its message)"), std::string::npos) << result.wait_for_graph;
  EXPECT_LT(result.virtual_ns, kSecond);
  for (const RankEnd& rank : result.ranks) EXPECT_EQ(rank.how, RankEnd::How::died);
}

TEST(Deadlock, IsNoneWhileAnybodySleepsOrComputes) {
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    World world(small_world(4, seed));
    const WorldResult result = world.run([&](Rank& rank) {
      const Comm comm = make_comm(rank);
      BufferPtr b = floats(rank, 2);
      if (rank.id == 3) rank.clock.sleep_until(3600 * kSecond);  // late, but coming
      const Op op = op_of(rank, OpKind::all_gather, 1);
      rank.wait(
          exchange(rank, comm, op, {send_to((rank.id + 1) % 4, b, 0, 1), receive_from((rank.id + 3) % 4, b, 1, 1)}), op,
          runtime::kForever, comm);
    });
    EXPECT_TRUE(all_returned(result));
  }
}

TEST(Deadlock, ARankThatHangsAmongOthersThatWaitForIt) {
  World world(small_world(3));
  const WorldResult result = world.run([&](Rank& rank) {
    const Comm comm = make_comm(rank);
    BufferPtr b = floats(rank, 2);
    if (rank.id == 2) rank.clock.sleep_until(runtime::kForever);
    const Op op = op_of(rank, OpKind::recv, 1);
    rank.wait(exchange(rank, comm, op, {receive_from(2, b, 0, 1)}), op, runtime::kForever, comm);
  });
  EXPECT_EQ(result.end, WorldEnd::deadlock);
  EXPECT_NE(result.wait_for_graph.find("rank 2: host waits for nothing (it hangs)"), std::string::npos)
      << result.wait_for_graph;
}

TEST(Deadlock, WhoHangsForEverDoesNotKeepTheWorldAlive) {
  World world(small_world(3));
  const WorldResult result = world.run([&](Rank& rank) {
    if (rank.id == 1) rank.clock.sleep_until(runtime::kForever);
    rank.clock.sleep_until(kSecond);
  });
  EXPECT_EQ(result.end, WorldEnd::finished);
  EXPECT_EQ(result.ranks[1].how, RankEnd::How::died);
  EXPECT_EQ(result.virtual_ns, kSecond);
}

TEST(Deadlock, BeforeTheFirstWatchdogTheGraphIsKept) {
  World world(small_world(2));
  std::vector<std::string> story;
  world.on_event([&](runtime::TimeNs, int, const std::string& text) { story.push_back(text); });
  const WorldResult result = world.run([&](Rank& rank) {
    const Comm comm = make_comm(rank);
    BufferPtr b = floats(rank, 2);
    const Op op = op_of(rank, OpKind::recv, 1);
    if (rank.id == 0) {
      EXPECT_EQ(
          failure_of([&] { rank.wait(exchange(rank, comm, op, {receive_from(1, b, 0, 1)}), op, 10 * kSecond, comm); }),
          ErrorKind::timeout);
      const Comm comms[] = {comm};
      rank.transport.abort(comms);
    }
  });
  EXPECT_TRUE(all_returned(result));
  EXPECT_NE(result.wait_for_graph.find("recv #1"), std::string::npos);
  ASSERT_FALSE(story.empty());
  EXPECT_NE(story.back().find("watchdogs"), std::string::npos);
}

TEST(Fibers, ExceptionsOfRanksStayTheirOwn) {
  World world(small_world(8));
  const WorldResult result = world.run([&](Rank& rank) {
    try {
      try {
        throw std::runtime_error("error of rank " + std::to_string(rank.id));
      } catch (...) {  // suspends inside a catch block, which no code should do
        rank.clock.sleep_until(kSecond * (8 - rank.id));
        throw;
      }
    } catch (const std::exception& e) {
      EXPECT_EQ(std::string(e.what()), "error of rank " + std::to_string(rank.id));
    }
  });
  EXPECT_TRUE(all_returned(result));
}

TEST(Fibers, KernelsHaveRoomOnTheStack) {
  World world(small_world(2));
  const WorldResult result = world.run([&](Rank& rank) {
    rank.device.compute_queue().launch(op_of(rank, OpKind::compute, 1), {1e6, 0}, [](kernels::Lane) {
      auto* room = static_cast<volatile char*>(alloca(std::size_t(2) << 20));
      for (std::size_t i = 0; i < (std::size_t(2) << 20); i += 512) room[(std::size_t(2) << 20) - 1 - i] = 1;
    });
    rank.device.drain();
  });
  EXPECT_TRUE(all_returned(result));
}

TEST(World, SaysWhoThrewAndWhat) {
  World world(small_world(2));
  const WorldResult result = world.run([&](Rank& rank) {
    if (rank.id == 1) throw std::runtime_error("out of ideas");
  });
  EXPECT_EQ(result.end, WorldEnd::failed);
  EXPECT_EQ(result.ranks[1].how, RankEnd::How::threw);
  EXPECT_EQ(result.ranks[1].what, "out of ideas");
  EXPECT_EQ(result.ranks[0].how, RankEnd::How::returned);
}

TEST(World, StopsAtItsWallLimit) {
  WorldPlan plan = small_world(2);
  plan.wall_limit_s = 0.05;
  World world(plan);
  const WorldResult result = world.run([&](Rank& rank) {
    for (;;) rank.clock.sleep_until(rank.clock.now() + 1);
  });
  EXPECT_EQ(result.end, WorldEnd::out_of_wall_time);
}

TEST(World, KillsARankAtItsTime) {
  World world(small_world(3));
  bool told = false;
  world.kill_at(1, 5 * kSecond, [&] { told = true; });
  runtime::TimeNs destroyed = 0;
  const WorldResult result = world.run([&](Rank& rank) {
    struct Guard {
      runtime::TimeNs& at;
      Rank& rank;
      ~Guard() {
        rank.device.drain();  // a dead rank's calls do nothing and do not throw
        rank.clock.sleep_until(100 * kSecond);
        if (rank.id == 1) at = rank.clock.now();
      }
    } guard{destroyed, rank};
    rank.clock.sleep_until(10 * kSecond);
    EXPECT_NE(rank.id, 1);
  });
  EXPECT_TRUE(told);
  EXPECT_EQ(destroyed, 5 * kSecond);
  EXPECT_EQ(result.end, WorldEnd::finished);
  EXPECT_EQ(result.ranks[1].how, RankEnd::How::died);
}

TEST(World, RefusesAnUnknownNetworkByName) {
  try {
    link_preset("carrier_pigeon");
    FAIL();
  } catch (const std::invalid_argument& e) {
    EXPECT_NE(std::string(e.what()).find("nvlink, pcie, ib, tcp"), std::string::npos);
  }
}

}  // namespace
}  // namespace seeksim::sim
