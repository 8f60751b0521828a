// The random streams of dropout, and that a run with it has the bits of one rank, whatever is split.
#include "runtime/model/dropout.h"

#include <gtest/gtest.h>

#include <set>

#include "runtime/rules/bugs.h"
#include "tests/support/simulated_training.h"

namespace seeksim::test {
namespace {

TEST(DropoutStreams, AreOneForEachPlaceAndNoneOfTheData) {
  constexpr std::uint32_t kDataStreams = 0xdada0001;
  std::set<std::uint32_t> seen;
  for (int layer = 0; layer < 10000; ++layer) {
    for (int site = 0; site < int(DropoutSite::count_); ++site) {
      const std::uint32_t stream = dropout_stream(DropoutSite(site), layer);
      EXPECT_TRUE(seen.insert(stream).second) << layer << " " << site;
      EXPECT_LT(stream, kDataStreams);
    }
  }
}

TEST(DropoutInTraining, StageWorldAndMicroBatchChangeNoBit) {
  for (const ElementType compute : {ElementType::f32, ElementType::bf16}) {
    TrainPlan plan = tiny_plan(true);
    plan.definition.model.dropout = {0.1, 0.2, 0.3};
    plan.definition.precision.compute = compute;
    const Trained golden = run_alone(plan);
    for (const int stage : {0, 1, 2, 3}) {
      plan.layout.zero = zero_plan(stage);
      plan.layout.micro_batch = 1 + stage;
      const Simulated run = run_simulated(plan, world_of(2 + stage));
      ASSERT_EQ(int(run.finished().size()), 2 + stage) << run.world.wait_for_graph;
      for (const auto& outcome : run.outcomes) EXPECT_EQ(outcome->state, golden.outcome.state) << "stage " << stage;
    }
  }
}

TEST(DropoutInTraining, MasksThatDependOnTheRankAreSeen) {
  TrainPlan plan = tiny_plan();
  plan.definition.model.dropout.residual = 0.2;
  const Trained golden = run_alone(plan);
  plan.bug.bug = Bug::rank_seeded_dropout;
  const Simulated run = run_simulated(plan, world_of(2));
  ASSERT_EQ(run.finished().size(), 2U);
  EXPECT_EQ(run.outcomes[0]->state, run.outcomes[1]->state) << "all agree";
  EXPECT_NE(run.outcomes[0]->state, golden.outcome.state) << "on wrong bits";
}

}  // namespace
}  // namespace seeksim::test
