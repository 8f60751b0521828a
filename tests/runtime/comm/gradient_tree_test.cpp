#include "runtime/comm/gradient_tree.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <cstring>

#include "kernels/random.h"
#include "kernels/tree.h"
#include "runtime/comm/communicator.h"
#include "tests/support/inline_seams.h"

namespace seeksim::test {
namespace {

using kernels::TreeNode;

std::vector<float> leaves_of(Index n) {
  std::vector<float> leaves;
  for (Index i = 0; i < n; ++i) leaves.push_back(1.0f / float(i + 3) * (i % 3 ? 1.7f : -0.9f));
  return leaves;
}

// Feeds micro-batches of random sizes in any order; a block's value is its subtree, as a backward pass would make it.
std::vector<float> grow(GradientTree& tree, Launcher& launch, const std::vector<float>& leaves, SampleRange range,
                        const std::vector<SampleRange>& micro) {
  tree.begin(Index(leaves.size()));
  for (const SampleRange& m : micro) {
    for (const TreeNode node : kernels::cover(m.begin, m.end, Index(leaves.size()))) {
      const Index first = kernels::first_leaf(node);
      const Index end = std::min<Index>(kernels::first_leaf({node.level, node.index + 1}), range.end);
      tree.open(node).get()[0] = kernels::tree_fold({leaves.data() + first, end - first});
      tree.close(launch, node);
    }
  }
  std::vector<float> values;
  for (const auto& part : tree.parts()) values.push_back(part.get()[0]);
  return values;
}

TEST(GradientTree, RootsDoNotDependOnTheMicroBatches) {
  rc::check([] {
    const Index total = *rc::gen::inRange<Index>(1, 70);
    const std::vector<float> leaves = leaves_of(total);
    const int members = *rc::gen::inRange(1, 9);
    const int position = *rc::gen::inRange(0, members);
    const SampleRange mine = samples_of(total, members, position);
    std::vector<SampleRange> micro;
    for (Index at = mine.begin; at < mine.end;) {
      const Index size = std::min<Index>(*rc::gen::inRange<Index>(1, 9), mine.end - at);
      micro.push_back({at, at + size});
      at += size;
    }
    for (std::size_t i = micro.size(); i > 1; --i)
      std::swap(micro[i - 1], micro[std::size_t(*rc::gen::inRange<int>(0, int(i)))]);
    OneRank world;
    Launcher launch(world.device.queue, 0);
    GradientTree tree(world.device, 1);
    const auto values = grow(tree, launch, leaves, mine, micro);
    const auto nodes = TreeOwnership{total, members}.nodes(position);
    RC_ASSERT(tree.nodes() == nodes);
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      const Index first = kernels::first_leaf(nodes[i]),
                  end = std::min<Index>(kernels::first_leaf({nodes[i].level, nodes[i].index + 1}), mine.end);
      RC_ASSERT(values[i] == kernels::tree_fold({leaves.data() + first, end - first}));
    }
  });
}

// A bug planted in the data: what would be wrong if gradients were added as they arrive, or scaled before the sum.
TEST(GradientTree, AnotherOrderOrAnEarlierScaleGivesOtherBits) {
  int in_order_differs = 0, backwards_differs = 0, scaled_differs = 0;
  for (int set = 0; set < 100; ++set) {
    std::vector<float> leaves(48);
    kernels::fill_normal({}, {leaves.data(), 48}, std::uint32_t(set), 0, 1.0f, 5);
    const float root = kernels::tree_fold({leaves.data(), 48});
    float in_order = 0, backwards = 0;
    for (std::size_t i = 0; i < 48; ++i) in_order += leaves[i];
    for (std::size_t i = 48; i-- > 0;) backwards += leaves[i];
    std::vector<float> by_rank;
    for (int r = 0; r < 3; ++r) by_rank.push_back(kernels::tree_fold({leaves.data() + 16 * r, 16}) * (1.0f / 3));
    in_order_differs += in_order != root;
    backwards_differs += backwards != root;
    scaled_differs += kernels::tree_fold({by_rank.data(), 3}) != root * (1.0f / 3);
  }
  EXPECT_GT(in_order_differs, 50);
  EXPECT_GT(backwards_differs, 50);
  EXPECT_GT(scaled_differs, 20);
}

TEST(GradientTree, ForgetsAnInterruptedStepAndReusesItsBuffers) {
  OneRank world;
  Launcher launch(world.device.queue, 0);
  GradientTree tree(world.device, 4);
  for (int step = 0; step < 5; ++step) {
    tree.begin(8);
    for (Index i = 0; i < 3; ++i) {
      tree.open({0, i});
      if (i < 2) tree.close(launch, {0, i});
    }
    EXPECT_LE(world.device.use_total().now, 3 * 16U) << "step " << step;
  }
}

TEST(GradientTree, HoldsFewBuffers) {
  OneRank world;
  Launcher launch(world.device.queue, 0);
  GradientTree tree(world.device, 1);
  tree.begin(1024);
  for (Index i = 0; i < 1024; ++i) {
    tree.open({0, i});
    tree.close(launch, {0, i});
  }
  EXPECT_LE(world.device.use_total().now, 11 * sizeof(float));
  EXPECT_EQ(tree.nodes().size(), 1U);
}

// The member has buffers and launches like others, so that its course is theirs, and touches no memory.
TEST(GradientTree, AMemberThatOwnsNothingMergesNothing) {
  OneRank world;
  Launcher launch(world.device.queue, 0), other(world.device.queue, 0);
  GradientTree none(world.device, 0), one(world.device, 1);
  for (GradientTree* tree : {&none, &one}) {
    tree->begin(2);
    for (Index i = 0; i < 2; ++i) {
      EXPECT_EQ(tree->open({0, i}).n, tree == &none ? 0 : 1);
      tree->close(tree == &none ? launch : other, {0, i});
    }
    tree->scale(tree == &none ? launch : other, 0.5f);
  }
  EXPECT_EQ(none.parts().size(), 1U);
  EXPECT_EQ(none.parts()[0].n, 0);
  EXPECT_EQ(launch.last().sequence, other.last().sequence);
  EXPECT_EQ(world.device.use_total().now, 4 * sizeof(float));
}

TEST(LossScale, PartsMultiplyToOneOverTheTokens) {
  for (Index tokens = 1; tokens < 5000; ++tokens) {
    const LossScale scale(tokens);
    int exponent = 0;
    EXPECT_EQ(std::frexp(scale.at_loss, &exponent), 0.5f) << tokens;
    EXPECT_EQ(scale.at_loss * scale.at_root, float(1.0 / double(tokens))) << tokens;
    EXPECT_GE(scale.at_root, 1.0f);
    EXPECT_LT(scale.at_root, 2.0f);
  }
}

}  // namespace
}  // namespace seeksim::test
