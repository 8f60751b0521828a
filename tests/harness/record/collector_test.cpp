// What a collector makes of what ranks tell.
#include "harness/record/collector.h"

#include <gtest/gtest.h>

#include <cmath>

namespace seeksim::harness {
namespace {

TEST(Collector, HoldsEveryRanksStepAgainstTheFirst) {
  Collector collector(3);
  runtime::StepRecord step;
  step.loss = std::nanf("");
  collector.step_committed(0, step);
  collector.step_committed(1, step);
  EXPECT_TRUE(collector.record().training.disagreements.empty()) << "the same NaN";
  step.loss = 1;
  collector.step_committed(2, step);
  ASSERT_EQ(collector.record().training.disagreements.size(), 1u);
  EXPECT_EQ(collector.record().training.disagreements[0].rank, 2);
  EXPECT_EQ(collector.record().training.step_comparisons, 2u);
}

TEST(Collector, AStepThatNobodyCommittedIsAGap) {
  Collector collector(1);
  runtime::StepRecord step;
  step.step = 2;
  step.loss = 1;
  collector.step_committed(0, step);
  ASSERT_EQ(collector.record().steps.size(), 3u);
  EXPECT_TRUE(std::isnan(collector.record().steps[0].loss));
  EXPECT_EQ(collector.record().steps[2].loss, 1);
}

TEST(Collector, PutsARecoveryTogether) {
  Collector collector(3);
  runtime::RecoveryRecord told;
  told.diagnosis.culprits = {2};
  told.detected_ns = 20;
  told.agreed_ns = 30;
  collector.recovering(0, told);
  told.detected_ns = 10;
  told.agreed_ns = 31;
  collector.recovering(1, told);
  told.rebuilt_ns = 40;
  told.resumed_ns = 50;
  collector.recovered(1, told);
  told.epoch = 1;
  told.diagnosis.culprits = {0};
  collector.recovering(1, told);
  told.diagnosis.culprits = {1};
  collector.recovering(0, told);
  const std::vector<Recovery>& all = collector.record().detection.recoveries;
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].first_rank, 1);
  EXPECT_EQ(all[0].detected_ns, 10);
  EXPECT_EQ(all[0].agreed_ns, 31);
  EXPECT_EQ(all[0].resumed_ns, 50);
  EXPECT_TRUE(all[0].of_another_mind.empty());
  EXPECT_EQ(all[1].resumed_ns, -1);
  EXPECT_EQ(all[1].of_another_mind, std::vector<int>{0});
}

}  // namespace
}  // namespace seeksim::harness
