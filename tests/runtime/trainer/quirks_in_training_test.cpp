// Each wired quirk in a short run beside the clean one: it changes what it says, at its point, and nothing where it has
// nothing to change. The functions behind them have their numbers in quirks_test.cpp.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/simulated_training.h"

namespace seeksim::test {
namespace {

TrainPlan plan_in(ElementType type, int stage = 0) {
  TrainPlan plan = tiny_plan();
  plan.definition.precision.compute = plan.definition.precision.gradients = type;
  plan.layout.zero.stage = stage;
  plan.layout.zero.reduce_bucket_elements = 700;
  return plan;
}

LossScalerPlan dynamic(int power, std::int64_t window) {
  LossScalerPlan plan;
  plan.kind = LossScalerKind::dynamic;
  plan.initial_scale_power = power;
  plan.loss_scale_window = window;
  return plan;
}

struct Pair {
  Simulated clean, quirky;
  const std::vector<StepRecord>& without() const { return clean.observer.steps.at(0); }
  const std::vector<StepRecord>& with() const { return quirky.observer.steps.at(0); }
  const StateDigest& state_without() const { return clean.outcomes.at(0)->state; }
  const StateDigest& state_with() const { return quirky.outcomes.at(0)->state; }
};

Pair both(TrainPlan plan, Quirk quirk, int ranks = 2) {
  Pair pair;
  plan.definition.quirks = {};
  pair.clean = run_simulated(plan, world_of(ranks));
  plan.definition.quirks = {quirk};
  pair.quirky = run_simulated(plan, world_of(ranks));
  EXPECT_EQ(int(pair.clean.finished().size()), ranks);
  EXPECT_EQ(int(pair.quirky.finished().size()), ranks);
  return pair;
}

void expect_same_numbers(const std::vector<StepRecord>& a, const std::vector<StepRecord>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].loss, b[i].loss) << "step " << i;
    EXPECT_EQ(a[i].grad_norm, b[i].grad_norm) << "step " << i;
  }
}

TEST(QuirksInTraining, PlanTheScalerOfStage0HalvesAtOnce) {
  TrainPlan plan = plan_in(ElementType::f16);
  plan.definition.scaler = dynamic(32, 1000);  // overflows from the first step on
  const Pair runs = both(plan, Quirk::ds_stage0_scaler);
  ASSERT_TRUE(runs.without()[0].skipped);
  EXPECT_EQ(runs.without()[1].loss_scale, runs.without()[0].loss_scale) << "hysteresis tolerates the first";
  EXPECT_EQ(runs.with()[1].loss_scale, runs.with()[0].loss_scale / 2);
}

TEST(QuirksInTraining, InitialStateAStrayStepDecaysAndCounts) {
  for (const int stage : {0, 1, 2, 3}) {
    TrainPlan plan = plan_in(ElementType::f32, stage);
    plan.definition.optimizer.weight_decay = 0.5;
    plan.definition.optimizer.lr = 0.1;
    const Pair decays = both(plan, Quirk::ds_stage0_stray_adam_step);
    EXPECT_NE(decays.with()[0].loss, decays.without()[0].loss) << "weights have decayed before step 0, stage " << stage;
    EXPECT_EQ(decays.state_with().optimizer_steps, decays.state_without().optimizer_steps + 1);
    plan.definition.quirks = {Quirk::ds_stage0_stray_adam_step};
    EXPECT_EQ(decays.state_with(), run_alone(plan).outcome.state) << "the same at every split, stage " << stage;

    plan.definition.optimizer.weight_decay = 0;
    const Pair counts = both(plan, Quirk::ds_stage0_stray_adam_step);
    EXPECT_EQ(counts.with()[0].loss, counts.without()[0].loss);
    EXPECT_NE(counts.with()[1].loss, counts.without()[1].loss) << "Adam's bias correction is a step ahead";
  }
}

TEST(QuirksInTraining, LossIsNotScaledButTheGradientIsUnscaled) {
  TrainPlan plan = plan_in(ElementType::f16);
  plan.definition.scaler.kind = LossScalerKind::static_scale;
  plan.definition.scaler.loss_scale = 256;
  const Pair runs = both(plan, Quirk::ds_stage0_unscaled_loss);
  EXPECT_EQ(runs.with()[0].loss, runs.without()[0].loss) << "the reported loss is not scaled";
  EXPECT_NEAR(runs.with()[0].grad_norm * 256, runs.without()[0].grad_norm, 0.02 * runs.without()[0].grad_norm);
}

TEST(QuirksInTraining, LossMeansOfUnequalSharesWeighTokensUnequally) {
  for (const Quirk quirk : {Quirk::mean_of_micro_batch_means, Quirk::mean_of_rank_means}) {
    for (const int stage : {0, 1, 2, 3}) {
      TrainPlan plan = plan_in(ElementType::f32, stage);
      const Pair equal = both(plan, quirk);
      expect_same_numbers(equal.with(), equal.without());
      EXPECT_EQ(equal.state_with().params, equal.state_without().params) << "shares are equal, stage " << stage;
      plan.definition.global_batch = 7;
      const Pair runs = both(plan, quirk);
      EXPECT_NE(runs.with()[0].loss, runs.without()[0].loss) << info(quirk).name << ", stage " << stage;
      EXPECT_NEAR(runs.with()[0].loss, runs.without()[0].loss, 0.05) << "it is a mean of the same losses";
      EXPECT_NE(runs.with()[0].grad_norm, runs.without()[0].grad_norm);
    }
  }
}

TEST(QuirksInTraining, ReductionByTheWorldsSizeRoundsAThird) {
  for (const Quirk quirk :
       {Quirk::ds_divides_before_sum, Quirk::ds_stage0_divides_after_sum, Quirk::fsdp_fp16_divides_twice}) {
    for (const int stage : {0, 1, 2, 3}) {
      TrainPlan plan = plan_in(ElementType::f32, stage);
      const Pair two = both(plan, quirk);
      expect_same_numbers(two.with(), two.without());
      EXPECT_EQ(two.state_with(), two.state_without()) << "a half is exact";
      plan.definition.global_batch = 12;
      plan.layout.micro_batch = 4;
      const Pair three = both(plan, quirk, 3);
      EXPECT_NEAR(three.with()[0].grad_norm, three.without()[0].grad_norm, 1e-5 * three.without()[0].grad_norm)
          << info(quirk).name << ", stage " << stage;
      EXPECT_NE(three.state_with().params, three.state_without().params) << info(quirk).name << ", stage " << stage;
    }
  }
}

TEST(QuirksInTraining, OverflowIsNotLookedFor) {
  for (const auto& [type, quirk] : {std::pair{ElementType::f32, Quirk::ds_fp32_unchecked},
                                    std::pair{ElementType::bf16, Quirk::ds_bf16_unchecked}}) {
    TrainPlan plan = plan_in(type, 1);
    plan.definition.optimizer.lr = 3e38;  // the first update is beyond all bounds, and the second step not finite
    const Pair runs = both(plan, quirk);
    ASSERT_TRUE(runs.without()[1].skipped);
    EXPECT_FALSE(runs.with()[1].skipped);
    EXPECT_EQ(runs.with()[1].grad_norm, -1.0f) << "what such a norm is reported as";
  }
}

TEST(QuirksInTraining, NormIsSummedByPartitions) {
  bool differs = false;
  for (const int stage : {1, 2}) {
    TrainPlan plan = plan_in(ElementType::f32, stage);
    plan.definition.steps = 8;
    const Pair runs = both(plan, Quirk::ds_partition_norm, 3);
    EXPECT_NEAR(runs.with()[0].grad_norm, runs.without()[0].grad_norm, 1e-5 * runs.without()[0].grad_norm);
    for (std::size_t i = 0; i < 8; ++i) differs |= runs.with()[i].grad_norm != runs.without()[i].grad_norm;
  }
  EXPECT_TRUE(differs) << "fp32 tree and fp64 slices round alike in all steps";
}

TEST(QuirksInTraining, UnscalingByTheNewScaleHalvesAStepThatGrows) {
  TrainPlan plan = plan_in(ElementType::f16, 2);
  plan.definition.scaler = dynamic(6, 1);
  plan.definition.gradient_clipping = 0;
  plan.definition.steps = 5;
  const Pair runs = both(plan, Quirk::ds_unscales_by_new_scale);
  std::size_t grows = 0;
  while (runs.without()[grows + 1].loss_scale == runs.without()[grows].loss_scale) ++grows;
  for (std::size_t i = 0; i <= grows; ++i) EXPECT_EQ(runs.with()[i].loss, runs.without()[i].loss) << "step " << i;
  EXPECT_NE(runs.with()[grows + 1].loss, runs.without()[grows + 1].loss);

  const Pair report = both(plan, Quirk::ds_stage3_norm_by_new_scale);
  EXPECT_EQ(report.with()[grows].grad_norm, report.without()[grows].grad_norm / 2);
  EXPECT_EQ(report.state_with(), report.state_without()) << "only what is reported";
}

TEST(QuirksInTraining, ClippingInOtherWays) {
  TrainPlan plan = plan_in(ElementType::f16, 1);
  plan.definition.scaler.kind = LossScalerKind::static_scale;
  plan.definition.scaler.loss_scale = 1024;
  plan.definition.gradient_clipping = 0.1;
  plan.definition.steps = 6;
  for (const Quirk quirk : {Quirk::llmc_clip_without_epsilon, Quirk::ds_clip_on_combined_scale}) {
    const Pair runs = both(plan, quirk);
    EXPECT_EQ(runs.with()[0].grad_norm, runs.without()[0].grad_norm);
    EXPECT_NEAR(runs.with()[2].loss, runs.without()[2].loss, 1e-2);
    EXPECT_NE(runs.state_with().optimizer, runs.state_without().optimizer) << info(quirk).name;
  }
  const Pair runs = both(plan, Quirk::torch_clips_before_unscale);
  EXPECT_EQ(runs.with()[0].grad_norm, runs.without()[0].grad_norm * 1024);
  EXPECT_NE(runs.state_with().optimizer, runs.state_without().optimizer);
}

TEST(QuirksInTraining, ScheduleCountsOtherThings) {
  TrainPlan plan = plan_in(ElementType::f32, 1);
  plan.definition.scheduler.type = "table";
  plan.definition.scheduler.table = {1e-3, 2e-3, 3e-3, 4e-3, 5e-3};
  plan.definition.skip_steps = {1};
  const Pair skipped = both(plan, Quirk::torch_schedule_counts_skipped);
  EXPECT_EQ(skipped.without()[2].lr, 2e-3);
  EXPECT_EQ(skipped.with()[2].lr, 3e-3);
  plan.definition.skip_steps = {};
  const Pair world = both(plan, Quirk::accelerate_schedule_times_world);
  EXPECT_EQ(world.without()[2].lr, 3e-3);
  EXPECT_EQ(world.with()[2].lr, 5e-3);
}

}  // namespace
}  // namespace seeksim::test
