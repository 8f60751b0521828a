// The aligned tree (F3): whichever ranks own the leaves, in whatever order these arrive, the bits are those of the
// definition.

#include "kernels/tree.h"

#include <rapidcheck.h>
#include <algorithm>
#include <map>
#include <stdexcept>

#include "tests/kernels/reference.h"

namespace seeksim::kernels::test {
namespace {

// The value of a node by the contract's definition. Leaves past the end do not exist.
float node_value(const Floats& leaves, TreeNode n) {
  if (n.level == 0) return leaves[static_cast<std::size_t>(n.index)];
  const float left = node_value(leaves, {n.level - 1, 2 * n.index});
  const TreeNode right{n.level - 1, 2 * n.index + 1};
  if (first_leaf(right) >= static_cast<Index>(leaves.size())) return left;
  return left + node_value(leaves, right);
}

TEST(TreeFold, EqualsTheDefinition) {
  Rng rng(1);
  for (std::size_t n = 0; n < 300; ++n) {
    const Floats v = wilds(rng, n, 30);
    EXPECT_EQ(canonical(tree_fold(vec(v))), canonical(tree(v))) << n;
  }
}

TEST(TreeCover, IsTheFewestNodesAndTilesTheRange) {
  for (Index leaves = 1; leaves <= 40; ++leaves)
    for (Index begin = 0; begin < leaves; ++begin)
      for (Index end = begin; end <= leaves; ++end) {
        const auto nodes = cover(begin, end, leaves);
        Index next = begin;
        for (TreeNode n : nodes) {
          ASSERT_EQ(first_leaf(n), next);
          next = std::min(first_leaf({n.level, n.index + 1}), leaves);
        }
        ASSERT_EQ(next, end);
        for (std::size_t i = 0; i + 1 < nodes.size(); ++i) {  // no two neighbours make up their parent
          const bool siblings = nodes[i].level == nodes[i + 1].level && (nodes[i].index ^ 1) == nodes[i + 1].index;
          ASSERT_FALSE(siblings) << begin << " " << end << " " << leaves;
        }
      }
  EXPECT_EQ(cover(0, 6, 6).size(), 1U) << "the whole tree is one node, though leaves 6 and 7 do not exist";
}

class TreeSum : public OnEveryIsa {};
SEEKSIM_ON_EVERY_ISA(TreeSum);

TEST_P(TreeSum, IsTheSameForAnyOwnershipAndArrivalOrder) {
  const bool ok = rc::check([] {
    Rng rng(*rc::gen::arbitrary<std::uint64_t>());
    const auto leaves = static_cast<Index>(between(rng, 1, 70));
    const std::size_t n = between(rng, 1, 40) + (rng() % 5 == 0 ? 1500 : 0);
    std::vector<Floats> columns(n);
    for (Floats& c : columns) c = wilds(rng, static_cast<std::size_t>(leaves), 20);
    // Random owners of contiguous ranges; each sends the nodes that cover its range.
    std::vector<TreeNode> nodes;
    for (Index begin = 0; begin < leaves;) {
      const Index end = std::min<Index>(leaves, begin + static_cast<Index>(between(rng, 1, 20)));
      for (TreeNode node : cover(begin, end, leaves)) nodes.push_back(node);
      begin = end;
    }
    std::shuffle(nodes.begin(), nodes.end(), rng);
    std::vector<Floats> values(nodes.size(), Floats(n));
    std::vector<TreePart> parts;
    for (std::size_t p = 0; p < nodes.size(); ++p) {
      for (std::size_t i = 0; i < n; ++i) values[p][i] = node_value(columns[i], nodes[p]);
      parts.push_back({nodes[p], values[p].data()});
    }
    const float factor = rng() % 2 ? 1.0F : 0.3F;
    Floats got(n), want(n);
    tree_sum({}, parts.data(), static_cast<Index>(parts.size()), leaves, vec(got), factor);
    for (std::size_t i = 0; i < n; ++i) want[i] = factor == 1.0F ? tree(columns[i]) : tree(columns[i]) * factor;
    RC_ASSERT(difference(got, want) == "");
  });
  EXPECT_TRUE(ok);
}

TEST_P(TreeSum, NamesALeafThatIsMissingOrCoveredTwice) {
  Rng rng(3);
  const Floats data(4, 1.0F);
  Floats out(4);
  const auto message = [&](std::vector<TreeNode> nodes, Index leaves) -> std::string {
    std::vector<TreePart> parts;
    for (TreeNode n : nodes) parts.push_back({n, data.data()});
    try {
      tree_sum({}, parts.data(), static_cast<Index>(parts.size()), leaves, vec(out));
    } catch (const std::invalid_argument& e) {
      return e.what();
    }
    return "";
  };
  EXPECT_EQ(message({{2, 1}, {1, 0}, {1, 1}}, 8), "");
  EXPECT_EQ(message({{2, 1}, {1, 0}}, 8), "tree_sum: leaf 2 of 8 is missing");
  EXPECT_EQ(message({{1, 0}, {1, 1}}, 6), "tree_sum: leaf 4 of 6 is missing");
  EXPECT_EQ(message({{2, 0}, {0, 3}, {2, 1}}, 8), "tree_sum: leaf 3 of 8 is covered twice");
  EXPECT_EQ(message({{0, 0}, {0, 0}}, 1), "tree_sum: leaf 0 of 1 is covered twice");
  EXPECT_NE(message({{0, 0}, {0, 1}}, 1), "") << "a part past the last leaf";
  EXPECT_NE(message({}, 1), "");
}

TEST_P(TreeSum, TheResultMayReplaceAnOperand) {
  Rng rng(4);
  Floats a = tames(rng, 3000), b = tames(rng, 3000), want(3000);
  for (std::size_t i = 0; i < a.size(); ++i) want[i] = a[i] + b[i];
  const TreePart parts[] = {{{0, 0}, a.data()}, {{0, 1}, b.data()}};
  tree_sum({}, parts, 2, 2, vec(b));
  EXPECT_EQ(difference(b, want), "");
  Floats left = a, right = want;
  for (std::size_t i = 0; i < a.size(); ++i) want[i] = left[i] + right[i];
  tree_add({}, vec(std::as_const(left)), vec(std::as_const(right)), vec(left));
  EXPECT_EQ(difference(left, want), "");
}

}  // namespace
}  // namespace seeksim::kernels::test
