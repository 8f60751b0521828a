// Large worlds: that they work, what they cost in memory and in fiber switches. bench/sim_bench.cpp measures their
// time.
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

// Each rank takes part in ten sums over all ranks and in ten exchanges with a neighbour.
WorldResult sum_and_exchange(int ranks) {
  World world(large_world(ranks));
  int wrong = 0;
  const float sum = float(ranks - 1) * float(ranks / 2);
  WorldResult result = world.run([&](Rank& rank) {
    const Comm comm = make_comm(rank);
    BufferPtr b = floats(rank, 4, float(rank.id)), out = floats(rank, 4);
    runtime::Queue& q = rank.device.communication_queue();
    for (std::uint64_t i = 1; i <= 20; i += 2) {
      Op op = op_of(rank, OpKind::all_reduce, i);
      const runtime::TreeReduceSlice part{{0, rank.id}, vec<float>(*b, 0, 1)};
      rank.transport.tree_all_reduce(q, comm, op, {{&part, 1}, ranks, 1.0f, vec<float>(*out, 0, 1)});
      op.sequence = i + 1;
      op.kind = OpKind::all_gather;
      rank.wait(exchange(rank, comm, op, {send_to(rank.id ^ 1, b, 0, 1), receive_from(rank.id ^ 1, out, 1, 1)}), op,
                kSecond, comm);
      wrong += at(out, 0) == sum && at(out, 1) == float(rank.id ^ 1) ? 0 : 1;
    }
  });
  EXPECT_TRUE(all_returned(result));
  EXPECT_EQ(wrong, 0);
  return result;
}

TEST(Size, EachOfFourThousandRanksSwitchesLessThanTwiceAsOftenAsOneOfSixtyFour) {
  const WorldResult small = sum_and_exchange(64), large = sum_and_exchange(4096);
  EXPECT_GT(small.switches, 0u);
  EXPECT_LT(large.switches, small.switches * (4096 / 64) * 2);
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

// Seven ranks wait so long for one that does nothing.
WorldResult wait_in_vain(TimeNs timeout_ns) {
  World world(large_world(8));
  return world.run([&](Rank& rank) {
    const Comm comm = make_comm(rank);
    if (rank.id == 5) rank.clock.sleep_until(runtime::kForever);
    BufferPtr b = floats(rank, 1);
    const Op op = op_of(rank, OpKind::recv, 1);
    const Event done = exchange(rank, comm, op, {receive_from(5, b, 0, 1)});
    EXPECT_EQ(failure_of([&] { rank.wait(done, op, timeout_ns, comm); }), ErrorKind::timeout);
    const Comm comms[] = {comm};
    rank.transport.abort(comms);
  });
}

TEST(Size, HalfAnHourOfTimeoutCostsNoMoreSwitchesThanASecond) {
  const WorldResult quick = wait_in_vain(kSecond), slow = wait_in_vain(1800 * kSecond);
  EXPECT_GE(slow.virtual_ns, 1800 * kSecond);
  EXPECT_GT(quick.switches, 0u);
  EXPECT_EQ(slow.switches, quick.switches);
}

}  // namespace
}  // namespace seeksim::sim
