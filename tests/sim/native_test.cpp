// The native sum against one made of exchanges: the same bits, whichever ranks own the leaves.
#include <random>

#include "tests/sim/sim_test.h"

namespace seeksim::sim {
namespace {

using kernels::Index;
using kernels::TreeNode;

// Cuts [0, leaves) among n members at random points; some may get nothing.
std::vector<std::vector<TreeNode>> random_ownership(std::mt19937& draw, Index leaves, int n) {
  std::vector<Index> cuts = {0, leaves};
  for (int i = 1; i < n; ++i) cuts.push_back(Index(draw() % std::uint64_t(leaves + 1)));
  std::sort(cuts.begin(), cuts.end());
  std::vector<std::vector<TreeNode>> nodes;
  for (int i = 0; i < n; ++i) nodes.push_back(kernels::cover(cuts[std::size_t(i)], cuts[std::size_t(i) + 1], leaves));
  std::shuffle(nodes.begin(), nodes.end(), draw);
  return nodes;
}

struct Case {
  Index leaves, n;
  float factor;
  std::vector<float> values;  // leaves * n
  std::vector<float> leaf(Index i) const { return {values.begin() + i * n, values.begin() + (i + 1) * n}; }
};

Case random_case(std::mt19937& draw) {
  Case c{1 + Index(draw() % 40), 1 + Index(draw() % 50), draw() % 2 == 0 ? 1.0f : 0.1f, {}};
  std::normal_distribution<float> normal;
  for (Index i = 0; i < c.leaves * c.n; ++i) c.values.push_back(normal(draw) * std::ldexp(1.0f, int(draw() % 30) - 15));
  return c;
}

// A subtree's value by the definition: leaves added as the tree says.
std::vector<float> subtree(const Case& c, TreeNode node) {
  if (node.level == 0) return c.leaf(node.index);
  std::vector<float> left = subtree(c, {node.level - 1, node.index * 2});
  const TreeNode right{node.level - 1, node.index * 2 + 1};
  if (kernels::first_leaf(right) >= c.leaves) return left;
  const std::vector<float> other = subtree(c, right);
  for (std::size_t i = 0; i < left.size(); ++i) left[i] += other[i];
  return left;
}

enum class How { native, exchanged };

// Each member's result.
std::vector<std::vector<float>> all_reduce(How how, const Case& c, const std::vector<std::vector<TreeNode>>& ownership,
                                           std::uint64_t seed) {
  const int members = int(ownership.size());
  std::vector<std::vector<float>> results(ownership.size());
  World world(small_world(members, seed));
  const WorldResult result = world.run([&](Rank& rank) {
    const Comm comm = make_comm(rank);
    const auto& mine = ownership[std::size_t(rank.id)];
    std::size_t all_nodes = 0;
    for (const auto& nodes : ownership) all_nodes += nodes.size();
    BufferPtr parts = floats(rank, mine.size() * std::size_t(c.n) + 1), out = floats(rank, std::size_t(c.n));
    std::vector<runtime::TreeReduceSlice> slices;
    for (std::size_t k = 0; k < mine.size(); ++k) {
      const std::vector<float> value = subtree(c, mine[k]);
      std::copy(value.begin(), value.end(), &at(parts, k * std::size_t(c.n)));
      slices.push_back({mine[k], vec<float>(*parts, Index(k) * c.n, c.n)});
    }
    const Op op = op_of(rank, OpKind::all_reduce, 1);
    if (how == How::native) {
      EXPECT_TRUE(rank.transport.has_native(comm, op));
      rank.transport.tree_all_reduce(rank.device.communication_queue(), comm, op,
                                     {slices, c.leaves, c.factor, vec<float>(*out)});
      rank.wait(rank.device.communication_queue().record(), op, kSecond, comm);
    } else {  // all parts to all ranks, which sum them
      BufferPtr all = floats(rank, all_nodes * std::size_t(c.n) + 1);
      std::vector<Piece> pieces;
      std::vector<kernels::TreePart> tree;
      std::size_t place = 0;
      for (int peer = 0; peer < members; ++peer) {
        for (std::size_t k = 0; k < mine.size(); ++k)
          pieces.push_back(send_to(peer, parts, k * std::size_t(c.n), std::size_t(c.n)));
        for (const TreeNode node : ownership[std::size_t(peer)]) {
          pieces.push_back(receive_from(peer, all, place, std::size_t(c.n)));
          tree.push_back({node, &at(all, place)});
          place += std::size_t(c.n);
        }
      }
      rank.wait(exchange(rank, comm, op, pieces), op, kSecond, comm);
      kernels::tree_sum({}, tree.data(), Index(tree.size()), c.leaves, vec<float>(*out).get(), c.factor);
    }
    results[std::size_t(rank.id)].assign(&at(out, 0), &at(out, 0) + c.n);
  });
  EXPECT_TRUE(all_returned(result));
  return results;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

TEST(NativeSum, HasTheBitsOfOneMadeOfExchangesForAnyOwnership) {
  std::mt19937 draw(5);
  for (int round = 0; round < 150; ++round) {
    const Case c = random_case(draw);
    const int members = 1 + int(draw() % 9);
    const auto one = random_ownership(draw, c.leaves, members),
               other = random_ownership(draw, c.leaves, 1 + int(draw() % 9));
    std::vector<float> expected = subtree(c, {c.leaves <= 1 ? 0 : int(std::bit_width(std::uint64_t(c.leaves - 1))), 0});
    if (c.factor != 1.0f)
      for (float& v : expected) v *= c.factor;
    for (const auto& sum : all_reduce(How::native, c, one, std::uint64_t(round))) ASSERT_TRUE(same_bits(sum, expected));
    for (const auto& sum : all_reduce(How::exchanged, c, one, std::uint64_t(round)))
      ASSERT_TRUE(same_bits(sum, expected));
    for (const auto& sum : all_reduce(How::native, c, other, std::uint64_t(round)))
      ASSERT_TRUE(same_bits(sum, expected));
  }
}

TEST(NativeSum, TheComparisonSeesOneBit) {
  std::mt19937 draw(6);
  Case c = random_case(draw);
  const auto ownership = random_ownership(draw, c.leaves, 4);
  const auto before = all_reduce(How::native, c, ownership, 1);
  std::uint32_t bits = 0;
  std::memcpy(&bits, &c.values[0], 4);
  bits ^= 1u << 20;
  std::memcpy(&c.values[0], &bits, 4);
  EXPECT_FALSE(same_bits(before[0], all_reduce(How::native, c, ownership, 1)[0]));
}

TEST(NativeSum, MembersThatDifferAreTold) {
  World world(small_world(4));
  int told = 0;
  const WorldResult result = world.run([&](Rank& rank) {
    const Comm comm = make_comm(rank);
    BufferPtr b = floats(rank, 8), out = floats(rank, 8);
    const Index n = rank.id == 2 ? 7 : 8;
    const runtime::TreeReduceSlice part{{0, rank.id}, vec<float>(*b, 0, n)};
    const Op op = op_of(rank, OpKind::all_reduce, 1);
    rank.transport.tree_all_reduce(rank.device.communication_queue(), comm, op,
                                   {{&part, 1}, 4, 1.0f, vec<float>(*out, 0, n)});
    const Event done = rank.device.communication_queue().record();
    const ErrorKind failure = failure_of([&] { rank.wait(done, op, kSecond, comm); });
    told += failure == ErrorKind::mismatch ? 1 : 0;
    EXPECT_NE(failure, ErrorKind::count_);
    if (rank.id == 2) {
      EXPECT_EQ(failure, ErrorKind::mismatch);
    }
    const Comm comms[] = {comm};
    rank.transport.abort(comms);
  });
  EXPECT_TRUE(all_returned(result));
  EXPECT_GE(told, 2);
}

TEST(NativeSum, LeavesThatNobodyBringsAreAMismatch) {
  World world(small_world(2));
  const WorldResult result = world.run([&](Rank& rank) {
    const Comm comm = make_comm(rank);
    BufferPtr b = floats(rank, 1), out = floats(rank, 1);
    const runtime::TreeReduceSlice part{{0, 0}, vec<float>(*b)};  // both bring leaf 0, none leaf 1
    const Op op = op_of(rank, OpKind::all_reduce, 1);
    rank.transport.tree_all_reduce(rank.device.communication_queue(), comm, op,
                                   {{&part, 1}, 2, 1.0f, vec<float>(*out)});
    const Event done = rank.device.communication_queue().record();
    EXPECT_EQ(failure_of([&] { rank.wait(done, op, kSecond, comm); }), ErrorKind::mismatch);
    const Comm comms[] = {comm};
    rank.transport.abort(comms);
  });
  EXPECT_TRUE(all_returned(result));
}

TEST(NativeSum, ARankThatNeverJoinsStopsAllAndTheGraphNamesIt) {
  World world(small_world(8));
  const WorldResult result = world.run([&](Rank& rank) {
    const Comm comm = make_comm(rank);
    if (rank.id == 5) rank.clock.sleep_until(runtime::kForever);
    BufferPtr b = floats(rank, 4), out = floats(rank, 4);
    const runtime::TreeReduceSlice part{{0, rank.id}, vec<float>(*b)};
    const Op op = op_of(rank, OpKind::all_reduce, 1);
    rank.transport.tree_all_reduce(rank.device.communication_queue(), comm, op,
                                   {{&part, 1}, 8, 1.0f, vec<float>(*out)});
    const Event done = rank.device.communication_queue().record();
    EXPECT_EQ(failure_of([&] { rank.wait(done, op, 600 * kSecond, comm); }), ErrorKind::timeout);
    const Comm comms[] = {comm};
    rank.transport.abort(comms);
    rank.device.drain();
    EXPECT_EQ(word(out, 3), runtime::kPoisonAborted);
  });
  EXPECT_EQ(result.end, WorldEnd::finished);
  EXPECT_NE(result.wait_for_graph.find("waits for rank 5 (to join)"), std::string::npos) << result.wait_for_graph;
}

// Everybody brings one leaf of `n` floats at `at_ns` to a sum over "tcp"; rank `dead` is killed at `killed_ns`. What
// each rank's wait came to.
std::vector<ErrorKind> sum_with_a_death(int ranks, Index n, int dead, runtime::TimeNs killed_ns,
                                        runtime::TimeNs at_ns) {
  std::vector<ErrorKind> failures(std::size_t(ranks), ErrorKind::count_);
  World world(spread_world(ranks, 1, "tcp"));
  world.kill_at(dead, killed_ns, nullptr);
  world.run([&](Rank& rank) {
    const Comm comm = make_comm(rank);
    const BufferPtr b = floats(rank, std::size_t(n)), out = floats(rank, std::size_t(n));
    rank.clock.sleep_until(at_ns);
    const runtime::TreeReduceSlice part{{0, rank.id}, vec<float>(*b)};
    const Op op = op_of(rank, OpKind::all_reduce, 1);
    rank.transport.tree_all_reduce(rank.device.communication_queue(), comm, op,
                                   {{&part, 1}, ranks, 1.0f, vec<float>(*out)});
    const Event done = rank.device.communication_queue().record();
    failures[std::size_t(rank.id)] = failure_of([&] { rank.wait(done, op, 60 * kSecond, comm); });
    const Comm comms[] = {comm};
    rank.transport.abort(comms);
  });
  return failures;
}

// Five: so that neighbours are others than those across, and no power of two hides a wrong remainder.
TEST(NativeSum, BothNeighboursOfADeadRankAreToldAtOnce) {
  for (const int dead : {0, 2, 4}) {
    const auto failures = sum_with_a_death(5, 4, dead, kSecond, 5 * kSecond);
    for (const int rank : {(dead + 1) % 5, (dead + 4) % 5})
      EXPECT_EQ(failures[std::size_t(rank)], ErrorKind::remote_error);
    for (const int rank : {(dead + 2) % 5, (dead + 3) % 5}) EXPECT_EQ(failures[std::size_t(rank)], ErrorKind::timeout);
  }
}

TEST(NativeSum, ThatWasComputedOutlivesAMember) {
  const auto failures = sum_with_a_death(3, 4 << 20, 1, 5 * kSecond + kMillisecond, 5 * kSecond);
  EXPECT_EQ(failures[0], ErrorKind::count_);
  EXPECT_EQ(failures[2], ErrorKind::count_);
}

// A communicator without an error has none while its operations are under way; one that is being closed says so.
TEST(NativeSum, IsRefusedOnACommunicatorThatFailed) {
  World world(small_world(2));
  const WorldResult result = world.run([](Rank& rank) {
    const Comm comm = make_comm(rank);
    const BufferPtr b = floats(rank, 4), out = floats(rank, 4);
    const runtime::TreeReduceSlice part{{0, rank.id}, vec<float>(*b)};
    const auto sum = [&](std::uint64_t sequence, kernels::Index n) {
      return rank.transport.tree_all_reduce(rank.device.communication_queue(), comm,
                                            op_of(rank, OpKind::all_reduce, sequence),
                                            {{&part, 1}, 2, 1.0f, vec<float>(*out, 0, n)});
    };
    EXPECT_EQ(sum(1, 0), CommResult::success) << "nothing to sum";
    EXPECT_FALSE(rank.transport.unmatched(comm).pending) << "and no part in it";
    if (rank.id == 1) rank.clock.sleep_until(kSecond);
    EXPECT_EQ(sum(2, 4), CommResult::success);
    EXPECT_EQ(rank.transport.async_error(comm), CommResult::success) << "under way";
    rank.wait(rank.device.communication_queue().record(), op_of(rank, OpKind::all_reduce, 2), 10 * kSecond, comm);
    const Comm comms[] = {comm};
    rank.transport.abort(comms);
    EXPECT_NE(sum(3, 4), CommResult::success);
  });
  EXPECT_TRUE(all_returned(result));
}

}  // namespace
}  // namespace seeksim::sim
