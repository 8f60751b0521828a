// Tokens by step, beside those of DeepSpeed 0.19.8's CurriculumScheduler, whose update_difficulty(step + 1) was asked
// step by step.
#include <gtest/gtest.h>

#include <vector>

#include "runtime/plan/curriculum_plan.h"

namespace seeksim::runtime {
namespace {

using Steps = std::vector<std::int64_t>;

CurriculumPlan plan_of(CurriculumSchedule schedule, std::int64_t least, std::int64_t most, std::int64_t total,
                       std::int64_t each, double root = 1) {
  CurriculumPlan plan;
  plan.schedule = schedule;
  plan.min_difficulty = least, plan.max_difficulty = most;
  plan.total_step = total, plan.difficulty_step = each, plan.root_degree = root;
  return plan;
}

Steps difficulties(const CurriculumPlan& plan, std::size_t steps) {
  Steps all;
  for (std::size_t step = 0; step < steps; ++step) all.push_back(plan.difficulty(std::int64_t(step)));
  return all;
}

TEST(Curriculum, LinearGrowthIsDeepSpeeds) {
  constexpr auto linear = CurriculumSchedule::fixed_linear;
  EXPECT_EQ(difficulties(plan_of(linear, 8, 64, 20, 8), 24),
            (Steps{8, 8, 16, 16, 16, 24, 24, 24, 32, 32, 32, 40, 40, 40, 48, 48, 48, 56, 56, 64, 64, 64, 64, 64}));
  EXPECT_EQ(difficulties(plan_of(linear, 2, 6, 4, 1), 6), (Steps{3, 4, 5, 6, 6, 6}));
  EXPECT_EQ(difficulties(plan_of(linear, 5, 37, 10, 8), 12), (Steps{8, 8, 8, 16, 16, 24, 24, 24, 32, 32, 37, 37}))
      << "the first multiple of 8 at or above 5; the last one is no multiple";
}

TEST(Curriculum, GrowthByARootIsDeepSpeeds) {
  constexpr auto by_root = CurriculumSchedule::fixed_root;
  EXPECT_EQ(difficulties(plan_of(by_root, 8, 64, 20, 8, 2), 24),
            (Steps{16, 24, 24, 32, 32, 32, 40, 40, 40, 40, 48, 48, 48, 48, 56, 56, 56, 56, 56, 64, 64, 64, 64, 64}));
  EXPECT_EQ(difficulties(plan_of(by_root, 1, 100, 27, 1, 3), 30),
            (Steps{34, 42, 48, 53, 57, 60, 64, 67, 69, 72, 74, 76,  78,  80,  82,
                   84, 85, 87, 89, 90, 92, 93, 94, 96, 97, 98, 100, 100, 100, 100}));
  EXPECT_EQ(difficulties(plan_of(by_root, 8, 1024, 15, 8, 2.5), 16),
            (Steps{344, 456, 536, 600, 656, 712, 752, 792, 832, 864, 904, 936, 960, 992, 1024, 1024}));
}

TEST(Curriculum, AListOfDifficultiesIsDeepSpeeds) {
  CurriculumPlan plan = plan_of(CurriculumSchedule::fixed_discrete, 8, 64, 0, 1);
  plan.difficulties = {8, 16, 64};
  plan.max_steps = {5, 10};
  EXPECT_EQ(difficulties(plan, 13), (Steps{8, 8, 8, 8, 8, 16, 16, 16, 16, 16, 64, 64, 64}));
}

TEST(Curriculum, ItNeverShrinksAndEndsAtTheMost) {
  for (const double root : {1.0, 1.5, 2.0, 3.0, 7.0}) {
    const CurriculumPlan plan = plan_of(CurriculumSchedule::fixed_root, 3, 50, 31, 4, root);
    std::int64_t before = 1;
    for (std::int64_t step = 0; step < 40; ++step) {
      EXPECT_GE(plan.difficulty(step), before) << "step " << step << ", root " << root;
      before = plan.difficulty(step);
    }
    EXPECT_EQ(plan.difficulty(30), 48) << "the 31st step is the last of the schedule, and 50 is no multiple of 4";
    EXPECT_EQ(plan.difficulty(1000), 50);
  }
}

}  // namespace
}  // namespace seeksim::runtime
