// Groups of samples that are compressed apart: how they are cut among ranks, which nodes of the tree they are, and who
// cannot go on without whose residuals.
#include <gtest/gtest.h>

#include "runtime/comm/gradient_tree.h"
#include "runtime/parts/compressed_reduction.h"
#include "runtime/trainer/reduction.h"
#include "tests/support/trainer_parts.h"

namespace seeksim::test {
namespace {

TEST(CompressedGroups, AMembersSamplesAreWholeGroups) {
  for (const int members : {1, 2, 3, 5, 8}) {
    StepCut cut{24, members, 2, false};
    cut.grain = 8;
    Index next = 0;
    for (int member = 0; member < members; ++member) {
      const SampleRange samples = cut.samples(0, member);
      EXPECT_EQ(samples.begin, next);
      EXPECT_EQ(samples.begin % 8, 0);
      EXPECT_EQ(samples.size() % 8, 0);
      next = samples.end;
    }
    EXPECT_EQ(next, 24);
  }
}

TEST(CompressedGroups, WithoutCompressionTheCutIsWhatItWas) {
  for (const int members : {1, 2, 3, 5, 8})
    for (int member = 0; member < members; ++member)
      EXPECT_EQ((StepCut{24, members, 2, false}.samples(0, member)), samples_of(24, members, member));
}

TEST(CompressedGroups, NodesStayBelowTheGroup) {
  EXPECT_EQ(nodes_of({0, 16}, 16).size(), 1u);
  const std::vector<kernels::TreeNode> four = nodes_of({0, 16}, 16, 2);
  ASSERT_EQ(four.size(), 4u);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(four[std::size_t(i)], (kernels::TreeNode{2, i}));
  // The last group of 12 samples has no sibling, and is not taken for its parent.
  EXPECT_EQ(nodes_of({8, 12}, 12, 2), (std::vector<kernels::TreeNode>{{2, 2}}));
}

CompressionPlan plan_of(int groups) {
  CompressionPlan plan;
  plan.method = Compression::sign;
  plan.groups = groups;
  return plan;
}

TEST(CompressedGroups, AGroupIsANodeOfItsLevel) {
  EXPECT_EQ(plan_of(4).group_level(16), 2);
  EXPECT_EQ(plan_of(16).group_level(16), 0);
  EXPECT_EQ(plan_of(3).group_level(24), 3);
  EXPECT_EQ(CompressionPlan{}.group_level(16), CompressionPlan::kNoLevel);
  EXPECT_EQ(CompressionPlan{}.group_samples(16), 1);
}

TEST(CompressedGroups, ShardsOnTheWireFollowOneAnotherAndAreTheWhole) {
  const TrainPlan plan = tiny_plan();
  const Parameters parameters(plan.definition.model, false);
  const kernels::WireForm forms[] = {{kernels::Wire::sign}, {kernels::Wire::top, 3}};
  for (const kernels::WireForm form : forms) {
    for (const int members : {1, 2, 3, 7}) {
      const Partition partition(parameters, members);
      Index offset = 0, at = 0;
      for (int member = 0; member < members; ++member) {
        for (const kernels::WireRun& run : wire_runs(parameters, form, partition.shard(member))) {
          EXPECT_EQ(run.offset, offset) << member << " of " << members;
          EXPECT_EQ(run.at, at) << member << " of " << members;
          offset += run.n;
          at += kernels::wire_bytes(form, run.n);
        }
      }
      EXPECT_EQ(offset, parameters.trainable_size());
    }
  }
}

}  // namespace
}  // namespace seeksim::test
