// The places of ranks, also after ranks are gone; and the part of a model at each place.
#include "runtime/layout/grid.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "runtime/layout/parameters.h"

namespace seeksim::runtime {
namespace {

ParallelPlan plan_of(int pipeline, int tensor) {
  ParallelPlan plan;
  plan.pipeline = pipeline;
  plan.tensor = tensor;
  return plan;
}

std::vector<int> all(int ranks) {
  std::vector<int> members(static_cast<std::size_t>(ranks));
  std::iota(members.begin(), members.end(), 0);
  return members;
}

// Megatron-LM's RankGenerator("tp-dp-pp") and DeepSpeed's PipeModelDataParallelTopology, written out for 16 ranks.
TEST(Grid, RanksStandAsMegatronAndDeepSpeedPlaceThem) {
  const Grid grid(plan_of(4, 2), 16, all(16));
  EXPECT_EQ(grid.replicas(), 2);
  EXPECT_EQ(grid.way_axis(0, 0), (std::vector<int>{0, 1}));
  EXPECT_EQ(grid.way_axis(3, 1), (std::vector<int>{14, 15}));
  EXPECT_EQ(grid.data_axis(0, 0), (std::vector<int>{0, 2}));
  EXPECT_EQ(grid.data_axis(1, 1), (std::vector<int>{5, 7}));
  EXPECT_EQ(grid.replica(0), (std::vector<int>{0, 1, 4, 5, 8, 9, 12, 13}));
  EXPECT_EQ(*grid.place(13), (GridPlace{3, 0, 1}));
}

TEST(Grid, OfBrokenReplicasWholeOnesAreMade) {
  std::vector<int> members = all(8);  // 2 stages x 4 replicas
  std::erase(members, 1);             // stage 0 of replica 1
  std::erase(members, 6);             // stage 1 of replica 2
  const Grid grid(plan_of(2, 1), 8, members);
  EXPECT_EQ(grid.replicas(), 3);
  EXPECT_EQ(grid.data_axis(0, 0), (std::vector<int>{0, 2, 3}));
  EXPECT_EQ(grid.data_axis(1, 0), (std::vector<int>{4, 5, 7}));
  EXPECT_TRUE(grid.idle().empty());
  std::erase(members, 2);
  const Grid smaller(plan_of(2, 1), 8, members);
  EXPECT_EQ(smaller.replicas(), 2);
  EXPECT_EQ(smaller.idle(), (std::vector<int>{7}));
  EXPECT_FALSE(smaller.place(7).has_value());
  EXPECT_EQ(smaller.used(), (std::vector<int>{0, 3, 4, 5}));
}

TEST(Grid, SaysWhichPartNobodyHolds) {
  const Grid grid(plan_of(2, 2), 4, {0, 1, 3});
  EXPECT_EQ(grid.replicas(), 0);
  EXPECT_EQ(grid.problem(), "no surviving rank holds stage 1, tensor way 0");
}

ModelPlan model_of(bool tied) {
  ModelPlan model;
  model.layers = 5;
  model.width = 24;
  model.heads = 6;
  model.context = 7;
  model.vocab = 61;
  model.tied = tied;
  model.frozen = {"h.1.ln_1.*", "wpe.weight"};
  return model;
}

// Every element of the model is in exactly one part, but a tied table, which the first and the last stage hold.
TEST(ModelPart, PartsMakeUpTheModel) {
  for (const bool tied : {true, false}) {
    const ModelPlan model = model_of(tied);
    const Parameters whole(model, false);
    for (const int pipeline : {1, 2, 5}) {
      for (const int tensor : {1, 2}) {
        const ParallelPlan plan = plan_of(pipeline, tensor);
        ASSERT_EQ(problem(model, plan), "");
        std::vector<std::vector<int>> seen;
        for (const ParameterInfo& p : whole.all()) seen.emplace_back(std::size_t(p.size), 0);
        for (int stage = 0; stage < pipeline; ++stage) {
          for (int way = 0; way < tensor; ++way) {
            const Parameters part(model, false, model_part(model, plan, stage, way));
            for (const ParameterInfo& p : part.all()) {
              EXPECT_EQ(p.slab, whole.all()[p.number].slab);
              EXPECT_EQ(p.first % p.slab, 0) << p.name << " is cut inside a slab";
              if (!p.splits && way > 0) continue;
              for (Index i = 0; i < p.size; ++i) ++seen[p.number][std::size_t(p.first + i)];
            }
          }
        }
        for (const ParameterInfo& p : whole.all()) {
          const int holders = tied && pipeline > 1 && p.number == 0 ? 2 : 1;
          const bool right = std::all_of(seen[p.number].begin(), seen[p.number].end(),
                                         [holders](int times) { return times == holders; });
          EXPECT_TRUE(right) << p.name << ", " << pipeline << " stages, " << tensor << " ways";
        }
      }
    }
  }
}

TEST(ModelPart, WhatCannotBeCutIsRefusedWithTheReason) {
  ModelPlan model = model_of(true);
  EXPECT_NE(problem(model, plan_of(6, 1)).find("5 layers do not make 6 pieces"), std::string::npos);
  EXPECT_NE(problem(model, plan_of(1, 3)).find("exact on 1, 2, 4 or 8 ranks"), std::string::npos);
  EXPECT_NE(problem(model, plan_of(1, 8)).find("leaves the last rank without any"), std::string::npos);  // 6 heads
  ParallelPlan given = plan_of(2, 1);
  given.layers = {2, 2};
  EXPECT_EQ(problem(model, given), "the pieces have 4 layers, the model 5");
  given.layers = {2, 2, 1};
  EXPECT_NE(problem(model, given).find("3 pieces are given"), std::string::npos);
}

// With several pieces a stage, gradients of a piece are one range, and the ranges make up the space.
TEST(ModelPart, GradientsOfAPieceAreOneRange) {
  ModelPlan model = model_of(true);
  model.layers = 8;
  ParallelPlan plan = plan_of(2, 1);
  plan.virtual_stages = 4;
  for (int stage = 0; stage < 2; ++stage) {
    const Parameters part(model, false, model_part(model, plan, stage, 0));
    ASSERT_EQ(part.pieces().size(), 4u);
    for (std::size_t piece = 0; piece < 4; ++piece) {
      const Index begin = part.gradient_begin(piece), end = part.gradient_end(piece);
      for (const ParameterInfo* p : part.trainable()) {
        const bool inside = p->offset >= begin && p->offset + p->size <= end;
        const bool head = p->module == 0 && stage == 1;
        const int module = head ? model.layers + 1 : p->module;
        EXPECT_EQ(inside, part.pieces()[piece].has(module, model.layers)) << p->name << " and piece " << piece;
      }
      EXPECT_EQ(part.piece_of(begin), piece);
      EXPECT_EQ(part.piece_of(end - 1), piece);
    }
  }
}

}  // namespace
}  // namespace seeksim::runtime
