// Experts that are divided among ranks: who has which, where they stand, whose samples come together, and of which kind
// a gradient is.
#include <gtest/gtest.h>

#include <numeric>

#include "runtime/comm/expert_group.h"
#include "runtime/layout/gradient_split.h"
#include "runtime/layout/grid.h"
#include "runtime/layout/partition.h"

namespace seeksim::runtime {
namespace {

ModelPlan model_with_experts(int experts) {
  ModelPlan model;
  model.family = "llama";
  model.layers = 2, model.width = 12, model.heads = 2, model.context = 4, model.vocab = 31, model.ffn = 5;
  model.experts = {.count = experts};
  return model;
}

ParallelPlan groups_of(int expert) {
  ParallelPlan plan;
  plan.expert = expert;
  return plan;
}

// DeepSpeed's expert_parallel_group and expert_data_parallel_group, and Megatron's "tp-cp-ep-dp-pp", of 8 ranks.
TEST(ExpertGrid, AGroupAreNeighboursAmongTheRanksThatShareTheBatch) {
  std::vector<int> members(8);
  std::iota(members.begin(), members.end(), 0);
  const Grid grid(groups_of(4), 8, members);
  EXPECT_EQ(grid.replicas(), 2);
  EXPECT_EQ(grid.way_axis(0, 1), (std::vector<int>{4, 5, 6, 7}));
  EXPECT_EQ(grid.data_axis(0, 1), (std::vector<int>{1, 5}));
  EXPECT_EQ(Grid(groups_of(2), 4, {0, 2}).problem(), "no surviving rank holds stage 0, expert way 1");
}

TEST(ExpertParts, EachRankHasItsExpertsAndAllThatIsDense) {
  const ModelPlan model = model_with_experts(8);
  const Parameters whole(model, false);
  for (const int expert : {1, 2, 4, 8}) {
    std::vector<Index> held(whole.all().size());
    for (int way = 0; way < expert; ++way) {
      const ModelPart part = model_part(model, groups_of(expert), 0, way);
      const Parameters here(model, false, part);
      for (const ParameterInfo& p : here.all()) {
        EXPECT_EQ(part.cuts(p), expert > 1 && p.experts > 0) << p.name;
        EXPECT_EQ(p.first, part.cuts(p) ? held[p.number] : 0) << p.name << ", in turn";
        held[p.number] += p.size;
      }
    }
    for (const ParameterInfo& p : whole.all())
      EXPECT_EQ(held[p.number], (p.experts > 0 ? 1 : expert) * p.size) << p.name << ", " << expert;
  }
}

// Tensor ways have slabs of each expert: what is here are stretches of the whole, and together the ways have all of it.
TEST(ExpertParts, TensorWaysHaveSlabsOfEachExpert) {
  ModelPlan model = model_with_experts(8);
  model.heads = model.kv_heads = 8, model.width = 16, model.ffn = 16;
  model.experts.slabs = true;
  const Parameters whole(model, false);
  for (const auto& [tensor, expert] : {std::pair{2, 1}, {8, 1}, {2, 2}, {4, 8}, {2, 4}}) {
    ParallelPlan plan = groups_of(expert);
    plan.tensor = tensor;
    std::vector<std::vector<int>> held(whole.all().size());
    for (const ParameterInfo& p : whole.all()) held[p.number].resize(std::size_t(p.size));
    for (int way = 0; way < plan.ways(); ++way) {
      const ModelPart part = model_part(model, plan, 0, way);
      EXPECT_EQ(part.tensor_way(), way % tensor);
      EXPECT_EQ(part.expert_rank(), way / tensor);
      const Parameters here(model, false, part);
      const Partition partition(here, 3);
      for (int member = 0; member < 3; ++member) {
        for (const ParameterPiece& piece : partition.pieces(partition.shard(member))) {
          const ParameterInfo& p = *piece.parameter;
          EXPECT_EQ(p.whole_place(piece.first + piece.size - 1), p.whole_place(piece.first) + piece.size - 1) << p.name;
          if (!part.is_first_with(p)) continue;
          for (Index i = 0; i < piece.size; ++i) ++held[p.number][std::size_t(p.whole_place(piece.first + i))];
        }
      }
      for (const ParameterInfo& p : here.all()) {
        if (p.experts == 0) continue;
        EXPECT_EQ(p.of_expert, p.whole_expert / tensor);
        EXPECT_EQ(p.size, whole.all()[p.number].size / tensor / expert);
        EXPECT_EQ(p.slab * 8, p.whole_expert);
        EXPECT_EQ(part.norm_parts(p), 8 / expert) << "each expert's norm is apart until its slabs are together";
      }
    }
    for (const ParameterInfo& p : whole.all())
      EXPECT_EQ(held[p.number], std::vector<int>(std::size_t(p.size), 1)) << p.name << ", " << tensor << " " << expert;
  }
}

TEST(ExpertParts, WhatCannotBeDividedIsRefusedWithTheReason) {
  EXPECT_EQ(problem(model_with_experts(6), groups_of(4)), "6 experts cannot be divided evenly among 4 ranks");
  EXPECT_NE(problem(model_with_experts(6), groups_of(2)).find("each of 2 ranks would have 3 experts"),
            std::string::npos);
  EXPECT_EQ(problem(model_with_experts(6), groups_of(3)), "");
  EXPECT_EQ(problem(model_with_experts(6), groups_of(1)), "");
  ParallelPlan ways;
  ways.tensor = 2;
  ModelPlan model = model_with_experts(4);
  model.width = 16, model.heads = model.kv_heads = 8;
  EXPECT_NE(problem(model, ways).find("an expert's sums go over its whole width"), std::string::npos);
  model.experts.slabs = true;
  EXPECT_NE(problem(model, ways).find("no multiple of 8"), std::string::npos);
  model.ffn = 8;
  EXPECT_EQ(problem(model, ways), "");
}

// A group's samples are those of its ranks, in turn, whatever the batch.
TEST(ExpertParts, AGroupBringsTheSamplesOfItsRanks) {
  for (const Index batch : {1, 5, 12, 67, 96}) {
    for (const bool interleaved : {false, true}) {
      const StepCut cut{.leaves = batch, .members = 3, .micro = 2, .interleaved = interleaved, .each = 2};
      const StepCut ranks{.leaves = batch, .members = 6, .micro = 2, .interleaved = interleaved};
      ASSERT_EQ(cut.count(), ranks.count());
      for (int k = 0; k < cut.count(); ++k) {
        for (int rank = 0; rank < 6; ++rank) EXPECT_EQ(cut.samples_of_rank(k, rank), ranks.samples(k, rank));
        for (int group = 0; group < 3; ++group) {
          EXPECT_EQ(cut.samples(k, group).begin, ranks.samples(k, 2 * group).begin);
          EXPECT_EQ(cut.samples(k, group).end, ranks.samples(k, 2 * group + 1).end);
        }
      }
    }
  }
}

TEST(ExpertParts, AGradientIsAnExpertsOrNot) {
  for (const bool tied : {false, true}) {
    ModelPlan model = model_with_experts(4);
    model.tied = tied;
    model.frozen = {"*.1.block_sparse_moe.experts.down_proj.weight"};
    const Parameters part(model, false, model_part(model, groups_of(2), 0, 1));
    const GradientSplit split(part);
    Index at = 0, seen[2] = {0, 0};
    for (const GradientSplit::Run& run : split.runs()) {
      EXPECT_EQ(run.lo, at);
      EXPECT_EQ(run.at, seen[run.experts]);
      at = run.hi;
      seen[run.experts] += run.hi - run.lo;
    }
    EXPECT_EQ(at, part.gradient_size());
    EXPECT_EQ(split.size(true), seen[1]);
    EXPECT_EQ(split.size(false), seen[0]);
    for (const ParameterInfo* p : part.trainable()) {
      EXPECT_EQ(split.run_of(p->offset).experts, p->experts > 0) << p->name;
      EXPECT_EQ(split.run_of(p->offset + p->size - 1).experts, p->experts > 0) << p->name;
    }
    EXPECT_FALSE(split.run_of(part.loss_offset()).experts);
    EXPECT_EQ(split.runs().size(), 5u) << "dense, experts, dense, experts, dense";
  }
}

// Every token may send a rank as many rows as it has choices there; its experts take what they have room for.
TEST(ExpertGroup, PlacesAreAsManyAsCanBeNeeded) {
  const auto places = [](Index choices, Index experts, Index capacity, int ranks) {
    return ExpertGroup({.samples_max = 3, .tokens = 10, .choices = choices, .experts = experts, .capacity = capacity},
                       ranks, 0, {})
        .places();
  };
  EXPECT_EQ(places(2, 8, 0, 2), 20);
  EXPECT_EQ(places(2, 8, 0, 8), 10) << "one expert a rank: a token names it once";
  EXPECT_EQ(places(2, 8, 3, 2), 12);
  EXPECT_EQ(places(2, 8, 30, 2), 20);
}

TEST(ExpertGroup, BlocksOfAllRanksFollowEachOther) {
  ExpertGroup group({.samples_max = 3, .tokens = 10, .choices = 2, .experts = 8, .capacity = 0}, 2, 1, {});
  const SampleRange samples[] = {{2, 4}, {7, 8}};
  const std::vector<SampleRange> blocks[] = {{{2, 3}, {3, 4}}, {{7, 8}}};
  group.begin(samples, blocks);
  EXPECT_EQ(group.packed(), 1 * 2 * 20);
  EXPECT_EQ(group.arrived(), 3 * 20);
  EXPECT_EQ(group.blocks(), (std::vector<SampleRange>{{0, 1}, {1, 2}, {2, 3}}));
  EXPECT_EQ(group.blocks_of_step(), (std::vector<SampleRange>{{2, 3}, {3, 4}, {7, 8}}));
}

}  // namespace
}  // namespace seeksim::runtime
