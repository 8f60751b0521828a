// Shards inside groups of ranks, with replicas across them: the bits of one rank, whatever the groups; and mistakes
// that are seen.
#include <gtest/gtest.h>

#include <algorithm>

#include "runtime/layout/shard_groups.h"
#include "runtime/rules/bugs.h"
#include "tests/support/simulated_training.h"

namespace seeksim::test {
namespace {

TrainPlan grouped(int stage, int group) {
  TrainPlan plan = tiny_plan();
  plan.definition.global_batch = 7;
  plan.layout.zero = runtime::zero_plan(stage);
  plan.layout.zero.persistence_threshold_elements = 0;
  plan.layout.parallel.shard_group = group;
  return plan;
}

TEST(ShardGroups, AreOfTheSmallestSizeThatLeavesNobodyOver) {
  for (int ranks = 1; ranks <= 24; ++ranks) {
    for (int asked = 0; asked <= 25; ++asked) {
      const runtime::ShardGroups groups = runtime::shard_groups(asked, ranks);
      ASSERT_EQ(groups.groups() * groups.size, ranks);
      EXPECT_GE(groups.size, std::min(asked, ranks)) << "a shard is larger than was asked for";
      for (int size = asked; size > 0 && size < groups.size; ++size)
        EXPECT_NE(ranks % size, 0) << ranks << " ranks, " << asked << " asked: " << size << " would do";
    }
  }
  EXPECT_EQ(runtime::shard_groups(0, 6).size, 6);
  EXPECT_EQ(runtime::shard_groups(4, 7).size, 7);
  EXPECT_EQ(runtime::shard_groups(2, 9).size, 3);
}

TEST(ShardGroups, HoldAsManyCopiesOfAShardTogetherAsAreWanted) {
  for (const auto& [ranks, size] : {std::pair{4, 2}, {4, 4}, {6, 2}, {8, 1}}) {
    const runtime::ShardGroups groups{ranks, size};
    for (int wanted = 0; wanted < 6; ++wanted) {
      const int held = groups.groups() * (1 + groups.copies(wanted));
      EXPECT_GE(held, 1 + wanted) << ranks << " ranks in groups of " << size;
      EXPECT_LT(held - groups.groups(), 1 + wanted) << "one fewer in each group would do";
    }
  }
}

// Every sample is in one micro-step of one rank, a group's are contiguous, and all groups have as many micro-steps.
TEST(ShardGroups, CutAStepsSamplesOnce) {
  for (const int stage : {1, 2, 3}) {
    for (const auto& [ranks, size] : {std::pair{4, 2}, {6, 2}, {6, 3}, {8, 2}, {8, 1}}) {
      for (const int batch : {1, 3, 7, 13, 64}) {
        TrainPlan plan = grouped(stage, size);
        plan.definition.global_batch = batch;
        const runtime::ShardGroups groups{ranks, size};
        std::vector<int> seen(std::size_t(batch), 0);
        int steps = -1;
        for (int rank = 0; rank < ranks; ++rank) {
          const runtime::StepCut cut = runtime::step_cut(plan, ranks, rank);
          if (steps < 0) steps = cut.count();
          EXPECT_EQ(cut.count(), steps) << "groups would take other numbers of micro-steps";
          for (int k = 0; k < cut.count(); ++k) {
            const runtime::SampleRange samples = cut.samples(k, groups.place_of(rank));
            for (auto sample = samples.begin; sample < samples.end; ++sample) {
              ++seen[std::size_t(sample)];
              EXPECT_GE(sample, cut.own().begin);
              EXPECT_LT(sample, cut.own().end);
            }
          }
        }
        EXPECT_EQ(std::count(seen.begin(), seen.end(), 1), batch)
            << "stage " << stage << ", " << ranks << " ranks in groups of " << size << ", batch " << batch;
      }
    }
  }
}

TEST(ShardGroups, BitsAreThoseOfOneRankInEveryCut) {
  for (const ElementType type : {ElementType::f32, ElementType::bf16, ElementType::f16}) {
    TrainPlan plan = grouped(1, 0);
    plan.definition.precision.compute = type;
    const Trained golden = run_alone(undivided(plan));
    for (const int stage : {1, 2, 3}) {
      for (const auto& [ranks, group] : {std::pair{2, 1}, {4, 2}, {6, 2}, {6, 3}, {8, 4}}) {
        for (const int micro : {1, 3}) {
          plan = grouped(stage, group);
          plan.definition.precision.compute = type;
          plan.layout.micro_batch = micro;
          EXPECT_EQ(unlike_one_rank(plan, ranks, golden), "")
              << int(type) << ", stage " << stage << ", " << ranks << " ranks, groups of " << group
              << ", micro-batches of " << micro;
        }
      }
    }
  }
}

// Of a batch of 3 one of four groups has none: it takes part all the same.
TEST(ShardGroups, AGroupWithoutSamplesTakesPart) {
  TrainPlan plan = grouped(1, 2);
  plan.definition.global_batch = 3;
  const Trained golden = run_alone(undivided(plan));
  for (const int stage : {1, 2, 3}) {
    plan = grouped(stage, 2);
    plan.definition.global_batch = 3;
    plan.layout.micro_batch = 1;
    EXPECT_EQ(unlike_one_rank(plan, 8, golden), "") << stage;
  }
}

TEST(ShardGroups, GroupsThatNeverMeetAreSeen) {
  for (const int stage : {1, 2, 3}) {
    TrainPlan plan = grouped(stage, 2);
    const Trained golden = run_alone(undivided(plan));
    for (const Bug bug : {Bug::replicas_not_reduced, Bug::replicas_added_up}) {
      plan.bug = {bug};
      EXPECT_NE(unlike_one_rank(plan, 4, golden), "") << stage << ", " << int(bug);
    }
  }
}

// ---- a second copy for backward -------------------------------------------------------------------------------------

TrainPlan with_secondary(int group) {
  TrainPlan plan = grouped(3, 0);
  plan.layout.zero.hpz_partition = group;
  plan.layout.zero.max_reuse_distance = 0;
  return plan;
}

TEST(SecondaryShards, BitsAreThoseOfOneRankInEveryCut) {
  const Trained golden = run_alone(undivided(with_secondary(1)));
  for (const auto& [ranks, group] : {std::pair{4, 2}, {6, 2}, {6, 3}, {8, 4}}) {
    for (const int every : {0, 1, 2}) {
      for (const runtime::Index prefetch : {0, 1'000'000}) {
        TrainPlan plan = with_secondary(group);
        plan.layout.micro_batch = 1;
        plan.layout.checkpointing.every = every;
        plan.layout.zero.prefetch_elements = prefetch;
        EXPECT_EQ(unlike_one_rank(plan, ranks, golden), "")
            << ranks << " ranks, groups of " << group << ", checkpointing every " << every << ", prefetch " << prefetch;
      }
    }
  }
}

TEST(SecondaryShards, OnesThatNobodyRenewsAreSeen) {
  TrainPlan plan = with_secondary(2);
  const Trained golden = run_alone(undivided(plan));
  plan.bug = {Bug::secondary_shards_stale};
  EXPECT_NE(unlike_one_rank(plan, 4, golden), "");
}

}  // namespace
}  // namespace seeksim::test
