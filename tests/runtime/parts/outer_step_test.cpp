// Which workers a rank serves, and when their state is where a new world needs it.
#include "runtime/parts/outer_step.h"

#include <gtest/gtest.h>

#include <bit>

namespace seeksim::runtime {
namespace {

LocalSgdPlan plan_of(int workers, std::int64_t every) {
  LocalSgdPlan plan;
  plan.workers = workers;
  plan.every = every;
  return plan;
}

TEST(OuterStep, EveryWorkerIsServedOnce) {
  for (const int workers : {1, 2, 3, 8, 24}) {
    for (int members = 1; members <= workers; ++members) {
      Index next = 0;
      for (int position = 0; position < members; ++position) {
        const SampleRange here = workers_of(plan_of(workers, 1), members, position);
        EXPECT_EQ(here.begin, next);
        next = here.end;
      }
      EXPECT_EQ(next, workers);
    }
  }
}

TEST(OuterStep, AWorkerGoesWithItsRank) {
  const LocalSgdPlan plan = plan_of(4, 2);
  EXPECT_EQ(lost_worker(plan, {0, 1, 2, 3}, {0, 1, 2, 3}), "");
  EXPECT_EQ(lost_worker(plan, {0, 1, 2, 3}, {0, 2, 3}),
            "the weights and moments of worker 1 are on rank 1 alone, and rank 2 would have to go on with them");
  EXPECT_NE(lost_worker(plan, {0, 1}, {0, 1, 2, 3}), "");
  EXPECT_EQ(lost_worker(plan_of(1, 2), {0}, {0}), "");
}

TEST(OuterStep, FollowsEveryStepsThatAreCommitted) {
  const LocalSgdPlan plan = plan_of(4, 3);
  for (std::int64_t steps = 0; steps < 12; ++steps)
    EXPECT_EQ(plan.meets_after(steps), steps == 3 || steps == 6 || steps == 9);
  EXPECT_EQ(plan.meetings(11), 3);
  EXPECT_FALSE(LocalSgdPlan{}.meets_after(3));
}

TEST(OuterStep, AWorkerIsANodeOfTheTreeOverAStepsSamples) {
  EXPECT_EQ(plan_of(4, 1).level(16), 2);
  EXPECT_EQ(plan_of(16, 1).level(16), 0);
  EXPECT_EQ(plan_of(3, 1).level(24), 3);
}

TEST(MicroBatches, HaveSamplesOfOneWorker) {
  using Ranges = std::vector<SampleRange>;
  EXPECT_EQ(micro_batches_of_parts({4, 12}, 3, 4), (Ranges{{4, 6}, {6, 8}, {8, 9}, {9, 12}}));
  EXPECT_EQ(micro_batches_of_parts({0, 8}, 8, 4), (Ranges{{0, 4}, {4, 8}}));
  EXPECT_EQ(micro_batches_of_parts({4, 4}, 8, 4), Ranges{});
}

}  // namespace
}  // namespace seeksim::runtime
