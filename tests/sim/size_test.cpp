// Large worlds: that they work, what they cost in memory. Wall time is for bench/sim_bench.cpp; here only gross limits.
#include <chrono>
#include <fstream>

#include "tests/sim/sim_test.h"

namespace seeksim::sim {
namespace {

WorldPlan large_world(int ranks) {
  WorldPlan plan;
  plan.nodes = ranks / 8;
  plan.ranks_per_node = 8;
  return plan;
}

double resident_kib() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.rfind("VmRSS:", 0) == 0) return std::atof(line.c_str() + 6);
  return 0;
}

TEST(Size, FourThousandRanksSumAndExchange) {
  const auto begin = std::chrono::steady_clock::now();
  World world(large_world(4096));
  int wrong = 0;
  const WorldResult result = world.run([&](Rank& rank) {
    const Comm comm = make_comm(rank);
    BufferPtr b = floats(rank, 4, float(rank.id)), out = floats(rank, 4);
    runtime::Queue& q = rank.device.communication_queue();
    for (std::uint64_t i = 1; i <= 20; i += 2) {
      Op op = op_of(rank, OpKind::all_reduce, i);
      const runtime::TreeReduceSlice part{{0, rank.id}, vec<float>(*b, 0, 1)};
      rank.transport.tree_all_reduce(q, comm, op, {{&part, 1}, 4096, 1.0f, vec<float>(*out, 0, 1)});
      op.sequence = i + 1;
      op.kind = OpKind::all_gather;
      rank.wait(exchange(rank, comm, op, {send_to(rank.id ^ 1, b, 0, 1), receive_from(rank.id ^ 1, out, 1, 1)}), op,
                kSecond, comm);
      wrong += at(out, 0) == 4095.0f * 2048 && at(out, 1) == float(rank.id ^ 1) ? 0 : 1;
    }
  });
  EXPECT_TRUE(all_returned(result));
  EXPECT_EQ(wrong, 0);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
}

#if defined(__SANITIZE_ADDRESS__)
constexpr double kIdleKib = 64;  // its allocator rounds up
#else
constexpr double kIdleKib = 16;
#endif

TEST(Size, AnIdleRankIsSmall) {
  const double before = resident_kib();
  double held = 0;
  World world(large_world(4096));
  const WorldResult result = world.run([&](Rank& rank) {
    rank.clock.sleep_until(kSecond);
    if (held == 0) held = resident_kib();
    rank.clock.sleep_until(2 * kSecond);
  });
  EXPECT_TRUE(all_returned(result));
  EXPECT_LT((held - before) / 4096, kIdleKib);
}

TEST(Size, MoreFibersThanTheKernelHasGuardPages) {
  World world(large_world(40'000));
  const WorldResult result = world.run([](Rank& rank) { rank.clock.sleep_until(rank.id % 7); });
  EXPECT_TRUE(all_returned(result));
}

TEST(Size, HalfAnHourOfTimeoutCostsNoTime) {
  const auto begin = std::chrono::steady_clock::now();
  World world(large_world(8));
  const WorldResult result = world.run([](Rank& rank) {
    const Comm comm = make_comm(rank);
    if (rank.id == 5) rank.clock.sleep_until(runtime::kForever);
    BufferPtr b = floats(rank, 1);
    const Op op = op_of(rank, OpKind::recv, 1);
    const Event done = exchange(rank, comm, op, {receive_from(5, b, 0, 1)});
    EXPECT_EQ(failure_of([&] { rank.wait(done, op, 1800 * kSecond, comm); }), ErrorKind::timeout);
    const Comm comms[] = {comm};
    rank.transport.abort(comms);
  });
  EXPECT_GE(result.virtual_ns, 1800 * kSecond);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(1));
}

}  // namespace
}  // namespace seeksim::sim
