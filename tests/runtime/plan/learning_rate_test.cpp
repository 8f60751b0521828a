// Expected values: produced with DeepSpeed 0.19.6, n = 4 warm-up steps, maximum 1, T = 10.
#include <gtest/gtest.h>

#include <cmath>

#include "runtime/plan/learning_rate.h"
#include "runtime/rules/host_math.h"

namespace seeksim::runtime {
namespace {

SchedulerPlan plan_of(const std::string& type, const std::string& warmup) {
  SchedulerPlan plan;
  plan.type = type;
  plan.warmup_type = warmup;
  plan.warmup_max_lr = 1;
  plan.warmup_num_steps = 4;
  plan.total_num_steps = 10;
  return plan;
}

void expect_rates(const SchedulerPlan& plan, const std::vector<double>& rates) {
  for (std::size_t t = 0; t < rates.size(); ++t)
    EXPECT_NEAR(learning_rate(plan, 1.0, std::int64_t(t)), rates[t], 6e-6) << plan.type << " step " << t + 1;
}

TEST(Schedule, ConstantIsTheOptimizersOwnRate) {
  EXPECT_EQ(learning_rate(SchedulerPlan{}, 3e-4, 0), 3e-4);
  EXPECT_EQ(learning_rate(SchedulerPlan{}, 3e-4, 1000000), 3e-4);
}

TEST(Schedule, WarmupLogHasDeepSpeedsValues) { expect_rates(plan_of("WarmupLR", "log"), {0, 0, .5, .79248, 1, 1, 1}); }
TEST(Schedule, WarmupLinearHasDeepSpeedsValues) {
  expect_rates(plan_of("WarmupLR", "linear"), {0, 0, .25, .5, .75, 1, 1});
}
TEST(Schedule, WarmupDecayHasDeepSpeedsValues) {
  expect_rates(plan_of("WarmupDecayLR", "linear"), {0, 0, .25, .5, .75, 1, .83333, .66667, .5, .33333, .16667, 0, 0});
}
TEST(Schedule, WarmupCosineHasDeepSpeedsValues) {
  expect_rates(plan_of("WarmupCosineLR", "linear"),
               {0, 0, .25, .5, .75, .93302, .75002, .50005, .25008, .06708, .0001, .0001, .0001});
}

TEST(Schedule, FirstTwoStepsRunAtTheMinimum) {
  SchedulerPlan plan = plan_of("WarmupLR", "log");
  plan.warmup_min_lr = 0.125;
  EXPECT_EQ(learning_rate(plan, 1.0, 0), 0.125);
  EXPECT_EQ(learning_rate(plan, 1.0, 1), 0.125);
}

TEST(Schedule, WarmupIsAtLeastTwoSteps) {
  SchedulerPlan plan = plan_of("WarmupLR", "log");
  plan.warmup_num_steps = 0;
  expect_rates(plan, {0, 0, 1, 1});
}

TEST(HostMath, LogIsWithinTwoUlpOfLibm) {
  for (double x = 1e-3; x < 1e7; x *= 1.00037) {
    const double expected = std::log(x);
    ASSERT_NEAR(host_log(x), expected, 4.5e-16 * std::max(std::fabs(expected), 1e-3)) << x;
  }
  EXPECT_EQ(host_log(1.0), 0.0);
}

TEST(HostMath, CosPiIsWithinTwoUlpOfLibm) {
  for (double x = 0; x <= 1; x += 1.0 / 30011)
    ASSERT_NEAR(host_cos_pi(x), std::cos(3.14159265358979323846 * x), 4.5e-16) << x;
  EXPECT_EQ(host_cos_pi(0), 1.0);
  EXPECT_EQ(host_cos_pi(0.5), 0.0);
  EXPECT_EQ(host_cos_pi(1), -1.0);
}

}  // namespace
}  // namespace seeksim::runtime
