// Which tokens a rank of a context group has, where its ranks stand, and what cannot be cut.
#include "runtime/layout/context_cut.h"

#include <gtest/gtest.h>

#include <numeric>

#include "runtime/layout/grid.h"
#include "runtime/layout/parameters.h"

namespace seeksim::runtime {
namespace {

ParallelPlan context_groups(int context, bool zigzag = false) {
  ParallelPlan plan;
  plan.context = context;
  plan.context_zigzag = zigzag;
  return plan;
}

ModelPlan model_in_segments(int tokens) {
  ModelPlan model;
  model.layers = 1, model.width = 16, model.heads = 8, model.context = tokens, model.vocab = 31;
  model.segmented_gradients = true;
  return model;
}

TEST(ContextCut, EachTokenIsOnOneRank) {
  for (const Index tokens : {8, 24, 64}) {
    for (const auto& [ranks, zigzag] :
         {std::pair{1, false}, {2, false}, {2, true}, {4, false}, {4, true}, {8, false}}) {
      const ContextCut cut{tokens, ranks, zigzag};
      std::vector<int> owners(std::size_t(tokens), 0);
      for (int rank = 0; rank < ranks; ++rank) {
        Index size = 0, before = -1;
        for (int i = 0; i < cut.chunks_of_rank(); ++i) {
          EXPECT_GT(cut.first(rank, i), before) << "they ascend";
          before = cut.first(rank, i);
          for (Index t = before; t < before + cut.chunk_size(); ++t) ++owners[std::size_t(t)];
          size += cut.chunk_size();
        }
        EXPECT_EQ(size, cut.size());
      }
      EXPECT_EQ(owners, std::vector<int>(std::size_t(tokens), 1)) << tokens << ' ' << ranks << ' ' << zigzag;
    }
  }
}

// Under a causal mask token t sees t + 1 tokens. In one stretch each, the last rank sees far more than the first.
TEST(ContextCut, ZigzagGivesEachRankAsMuchToAttend) {
  const auto seen = [](const ContextCut& cut, int rank) {
    Index all = 0;
    for (int i = 0; i < cut.chunks_of_rank(); ++i)
      for (Index t = cut.first(rank, i); t < cut.first(rank, i) + cut.chunk_size(); ++t) all += t + 1;
    return all;
  };
  for (const int ranks : {2, 4}) {
    const ContextCut zigzag{64, ranks, true}, stretches{64, ranks, false};
    for (int rank = 1; rank < ranks; ++rank) EXPECT_EQ(seen(zigzag, rank), seen(zigzag, 0));
    EXPECT_LT(2 * seen(stretches, 0), seen(stretches, ranks - 1));
  }
}

TEST(ContextCut, AGroupAreNeighboursAndEachHasAllParameters) {
  std::vector<int> members(8);
  std::iota(members.begin(), members.end(), 0);
  const Grid grid(context_groups(4), 8, members);
  EXPECT_EQ(grid.replicas(), 2);
  EXPECT_EQ(grid.way_axis(0, 1), (std::vector<int>{4, 5, 6, 7}));
  EXPECT_EQ(grid.data_axis(0, 1), (std::vector<int>{1, 5}));
  EXPECT_EQ(Grid(context_groups(2), 4, {0, 2}).problem(), "no surviving rank holds stage 0, context way 1");
  const ModelPart part = model_part(model_in_segments(8), context_groups(4), 0, 3);
  EXPECT_TRUE(part.by_tokens);
  for (const ParameterInfo& p : whole_model(model_in_segments(8), false)) EXPECT_FALSE(part.cuts(p)) << p.name;
}

TEST(ContextCut, WhatCannotBeCutIsSaid) {
  EXPECT_EQ(problem(model_in_segments(16), context_groups(8)), "");
  EXPECT_EQ(problem(model_in_segments(16), context_groups(4, true)), "");
  EXPECT_NE(problem(model_in_segments(16), context_groups(3)).find("not on 3"), std::string::npos);
  EXPECT_NE(problem(model_in_segments(16), context_groups(8, true)).find("two chunks"), std::string::npos);
  EXPECT_NE(problem(model_in_segments(20), context_groups(2)).find("no multiple of 8"), std::string::npos);
  ModelPlan few = model_in_segments(16);
  few.heads = 4;
  EXPECT_NE(problem(few, context_groups(8)).find("4 key heads"), std::string::npos);
  ModelPlan chain = model_in_segments(16);
  chain.segmented_gradients = false;
  EXPECT_NE(problem(chain, context_groups(2)).find("one chain"), std::string::npos);
}

}  // namespace
}  // namespace seeksim::runtime
