// Sums over communicators: the bits are those of the tree over leaves, whichever ranks bring them; and what would go
// wrong with the mistakes that real frameworks make.
#include "runtime/comm/communicator.h"

#include <gtest/gtest.h>

#include "kernels/random.h"
#include "kernels/tree.h"
#include "tests/support/simulated_training.h"

namespace seeksim::test {
namespace {

constexpr Index kLeaves = 13;

// Leaf i of element e; the same on every rank.
std::vector<float> leaves_of_element(Index e) {
  std::vector<float> leaves(kLeaves);
  kernels::fill_normal({}, {leaves.data(), kLeaves}, std::uint32_t(e), 0, 1.0f, 11);
  return leaves;
}

struct Mistake {
  bool scale_by_world = false;  // 1/world before the sum, undone after it
  bool by_arrival = false;      // one partial sum a rank, claimed to be leaf `position`
};

// Every rank's result of summing its subtree roots, n elements.
std::vector<std::vector<float>> sum_over(int ranks, Index n, bool native, Mistake mistake = {}) {
  std::vector<std::vector<float>> results(static_cast<std::size_t>(ranks));
  sim::World world(world_of(ranks, native));
  world.run([&](Rank& rank) {
    Communicator comm(rank, Axis::data, 0, rank.control.members(), kSecond);
    const TreeOwnership ownership{mistake.by_arrival ? ranks : kLeaves, ranks};
    const SampleRange mine = samples_of(kLeaves, ranks, comm.position());
    const std::vector<kernels::TreeNode> nodes = ownership.nodes(comm.position());
    std::vector<BufferPtr> buffers;
    std::vector<VecView<const float>> parts;
    for (const kernels::TreeNode node : nodes) {
      buffers.push_back(rank.device.allocate(std::size_t(n) * sizeof(float), MemoryTag::partial_sums, "part"));
      Index first = kernels::first_leaf(node);
      Index end = std::min<Index>(kernels::first_leaf({node.level, node.index + 1}), mine.end);
      if (mistake.by_arrival) first = mine.begin, end = mine.end;
      for (Index e = 0; e < n; ++e) {
        const std::vector<float> leaves = leaves_of_element(e);
        float& value = vec<float>(*buffers.back()).get()[e];
        value = 0;
        if (mistake.by_arrival) {
          for (Index i = first; i < end; ++i) value += leaves[std::size_t(i)];
        } else {
          value = kernels::tree_fold({leaves.data() + first, end - first});
        }
        if (mistake.scale_by_world) value *= 1.0f / float(ranks);
      }
      parts.push_back(vec<const float>(*buffers.back(), 0, n));
    }
    const BufferPtr out = rank.device.allocate(std::size_t(n) * sizeof(float), MemoryTag::gradients, "sum");
    Queue& queue = rank.device.communication_queue();
    const float factor = mistake.scale_by_world ? float(ranks) : 1.0f;
    const Op op = comm.all_reduce(queue, Op{}, ownership, parts, factor, vec<float>(*out, 0, n));
    comm.wait(queue.record(), op);
    const auto sum = vec<const float>(*out, 0, n).get();
    results[std::size_t(rank.id)].assign(sum.data, sum.data + n);
    rank.device.drain();
  });
  return results;
}

std::vector<float> reference(Index n) {
  std::vector<float> sums;
  for (Index e = 0; e < n; ++e) {
    const std::vector<float> leaves = leaves_of_element(e);
    sums.push_back(kernels::tree_fold({leaves.data(), kLeaves}));
  }
  return sums;
}

TEST(Communicator, SumsAreThoseOfTheTreeInEveryWorldAndSize) {
  for (const Index n : {Index(1), Index(1023), Index(1024), Index(2500)}) {
    const std::vector<float> expected = reference(n);
    for (const int ranks : {1, 2, 3, 5, 8, 13, 16}) {
      for (const bool native : {true, false}) {
        const auto results = sum_over(ranks, n, native);
        for (const auto& result : results) {
          ASSERT_EQ(result, expected) << ranks << " ranks, " << n << " elements, native " << native;
        }
      }
    }
  }
}

TEST(Communicator, PlantedMistakesShow) {
  const std::vector<float> expected = reference(1000);
  Mistake scale, arrival;
  scale.scale_by_world = true;
  arrival.by_arrival = true;
  for (const bool native : {true, false}) {
    EXPECT_NE(sum_over(3, 1000, native, scale)[0], expected);
    EXPECT_NE(sum_over(5, 1000, native, arrival)[0], expected);
    EXPECT_EQ(sum_over(4, 1000, native, scale)[0], expected) << "a power of two is exact: why this mistake hides";
  }
}

TEST(Communicator, GathersEveryMembersShard) {
  for (const int ranks : {1, 2, 5}) {
    std::vector<std::vector<float>> results(static_cast<std::size_t>(ranks));
    sim::World world(world_of(ranks));
    world.run([&](Rank& rank) {
      Communicator comm(rank, Axis::data, 0, rank.control.members(), kSecond);
      const Index n = 5000;
      const BufferPtr values = rank.device.allocate(std::size_t(n) * sizeof(float), MemoryTag::gradients, "values");
      const std::vector<ShardInfo> shards = shard_evenly(n, ranks);
      const ShardInfo mine = shards[std::size_t(comm.position())];
      const auto data = vec<float>(*values).get();
      for (Index i = mine.offset; i < mine.offset + mine.size; ++i) data[i] = float(i);
      Queue& queue = rank.device.communication_queue();
      comm.wait((comm.all_gather(queue, Op{}, vec<float>(*values), shards), queue.record()), Op{});
      results[std::size_t(rank.id)].assign(data.data, data.data + n);
      rank.device.drain();
    });
    for (const auto& result : results) {
      for (std::size_t i = 0; i < result.size(); ++i) ASSERT_EQ(result[i], float(i));
    }
  }
}

TEST(Communicator, RemembersWhenItEnteredAnOperation) {
  sim::World world(world_of(1));
  world.run([&](Rank& rank) {
    Communicator comm(rank, Axis::data, 0, rank.control.members(), kSecond);
    EXPECT_EQ(comm.joined_ns(0), -1);
    EXPECT_EQ(comm.joined_ns(1), -1);
    const BufferPtr values = rank.device.allocate(4, MemoryTag::gradients, "values");
    for (int i = 1; i <= 200; ++i) {
      rank.clock.sleep_until(i * kSecond);
      comm.all_gather(rank.device.communication_queue(), Op{}, vec<float>(*values), shard_evenly(1, 1));
    }
    EXPECT_EQ(comm.joined_ns(200), 200 * kSecond);
    EXPECT_EQ(comm.joined_ns(73), 73 * kSecond);
    EXPECT_EQ(comm.joined_ns(72), -1) << "forgotten";
  });
}

TEST(Communicator, SaysWhatWasNotMadeInTime) {
  sim::World world(world_of(2));
  world.run([](Rank& rank) {
    if (rank.id == 1) return rank.clock.sleep_until(2 * kSecond);
    try {
      const Communicator comm(rank, Axis::data, 0, {0, 1}, kSecond);
      ADD_FAILURE() << "rank 1 never came";
    } catch (const SeamError& error) {
      EXPECT_STREQ(error.op().tensor, "communicator");
      EXPECT_EQ(error.op().axis, Axis::data);
      EXPECT_EQ(rank.clock.now(), kSecond);
    }
  });
}

}  // namespace
}  // namespace seeksim::test
