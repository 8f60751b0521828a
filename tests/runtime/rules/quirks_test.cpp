// Each quirk against numbers worked by hand, beside what seeksim does with the same input: a quirk that changes nothing
// would be a name without a meaning.
#include "runtime/rules/quirks.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>
#include <string>

#include "runtime/plan/learning_rate.h"
#include "runtime/plan/plan.h"
#include "runtime/rules/loss_scaler.h"
#include "runtime/trainer/trainer.h"

namespace seeksim::runtime {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

float factor(const Quirks& quirks, const UnscaledGradient& gradient, double limit) {
  return gradient_factor(quirks, gradient, limit).factor;
}
float reported(const Quirks& quirks, const UnscaledGradient& gradient, double limit = 0) {
  return gradient_factor(quirks, gradient, limit).reported_norm;
}

// ---- the catalogue -----------------------------------------------------------------------------------------------

TEST(Quirks, EveryRowIsWholeAndFoundByItsName) {
  std::set<std::string_view> names;
  ASSERT_EQ(quirk_catalogue().size(), std::size_t(Quirk::count_));
  for (const QuirkInfo& row : quirk_catalogue()) {
    for (const std::string_view text : {row.name, row.framework, row.does, row.instead, row.edits, row.source})
      EXPECT_FALSE(text.empty()) << row.name;
    EXPECT_TRUE(names.insert(row.name).second) << row.name << " twice";
    EXPECT_EQ(row.name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_"), std::string_view::npos) << row.name;
    EXPECT_EQ(quirk_named(row.name), row.quirk);
    EXPECT_EQ(info(row.quirk).name, row.name);
    EXPECT_NE(name(row.point), "unknown");
  }
  EXPECT_FALSE(quirk_named("halved_step").has_value());
}

TEST(Quirks, RivalsExcludeEachOther) {
  EXPECT_EQ(Quirks{}.conflict(), "");
  EXPECT_EQ((Quirks{Quirk::ds_unscales_by_new_scale, Quirk::ds_clip_on_combined_scale}.conflict()), "");
  const std::string text = Quirks{Quirk::mean_of_rank_means, Quirk::mean_of_micro_batch_means}.conflict();
  EXPECT_NE(text.find("mean_of_micro_batch_means and mean_of_rank_means"), std::string::npos) << text;
  EXPECT_NE(text.find("denominator"), std::string::npos) << text;
  EXPECT_NE((Quirks{Quirk::ds_divides_before_sum, Quirk::fsdp_fp16_divides_twice}.conflict()), "");
  EXPECT_NE((Quirks{Quirk::llmc_clip_without_epsilon, Quirk::torch_clips_before_unscale}.conflict()), "");
}

TEST(Quirks, ARouterCountsOverAMicroBatch) {
  EXPECT_EQ(samples_of_routing({}, 1, 4), 1);
  EXPECT_EQ(samples_of_routing({}, 2, 4), 2);
  EXPECT_EQ(samples_of_routing({Quirk::experts_by_micro_batch}, 1, 4), 4);
  EXPECT_FALSE(Quirks{Quirk::experts_by_micro_batch}.split_dependent()) << "one rank can do it, too";
}

TEST(Quirks, OneThatDependsOnTheSplitMakesTheRunDepend) {
  EXPECT_FALSE(Quirks{}.split_dependent());
  EXPECT_FALSE(Quirks{Quirk::ds_unscales_by_new_scale}.split_dependent());
  EXPECT_TRUE((Quirks{Quirk::ds_unscales_by_new_scale, Quirk::mean_of_rank_means}.split_dependent()));
}

// ---- plan and initial state --------------------------------------------------------------------------------------

TEST(Quirks, Stage0ScalerHasNoHysteresisAndNoLastWord) {
  LossScalerPlan plan;
  plan.kind = LossScalerKind::dynamic;
  plan.initial_scale_power = 3;
  plan.loss_scale_window = 3;
  plan.consecutive_hysteresis = true;
  EXPECT_EQ(scaler_plan({}, plan), plan);
  const auto scales = [](const LossScalerPlan& p, const std::string& flags) {
    LossScaler scaler(p);
    std::vector<double> out;
    for (const char flag : flags) {
      scaler.update(flag == 'X');
      out.push_back(scaler.stop_text().empty() ? scaler.scale() : -1);
    }
    return out;
  };
  const LossScalerPlan stage0 = scaler_plan({Quirk::ds_stage0_scaler}, plan);
  EXPECT_EQ(scales(stage0, "X.XXX...."), (std::vector<double>{4, 4, 2, 1, 1, 1, 1, 1, 2}));
  plan.consecutive_hysteresis = false;
  EXPECT_EQ(scales(plan, "X.XXXX"), (std::vector<double>{8, 8, 4, 2, 1, -1}));
}

TEST(Quirks, ClippingDefaultMovedWithAVersion) {
  EXPECT_EQ(default_clipping({}), 1.0);
  EXPECT_EQ(default_clipping({Quirk::ds_old_default_clipping}), 0.0);
}

TEST(Quirks, StrayStepIsOneCountAndOneDecay) {
  EXPECT_EQ(optimizer_start({}), (OptimizerStart{0, 0}));
  EXPECT_EQ(optimizer_start({Quirk::ds_stage0_stray_adam_step}), (OptimizerStart{1, 1}));
}

// ---- the loss ----------------------------------------------------------------------------------------------------

TEST(Quirks, UnscaledLossLosesTheScale) {
  EXPECT_EQ(loss_factor({}, 65536) * unscale_factor(65536), 1.0f) << "what goes in comes out";
  EXPECT_EQ(loss_factor({Quirk::ds_stage0_unscaled_loss}, 65536) * unscale_factor(65536), 0x1p-16f);
}

// Two ranks with two micro-batches: 1 + 3 tokens and 4 + 8 tokens.
TEST(Quirks, MeansOfMeansWeighTokensOfShortMicroBatchesMore) {
  using Weights = std::vector<std::vector<double>>;
  const std::vector<std::vector<std::int64_t>> tokens = {{1, 3}, {4, 8}};
  EXPECT_EQ(token_weights({}, tokens), (Weights{{1 / 16., 1 / 16.}, {1 / 16., 1 / 16.}}));
  EXPECT_EQ(token_weights({Quirk::mean_of_micro_batch_means}, tokens),
            (Weights{{1 / 4., 1 / 12.}, {1 / 16., 1 / 32.}}));
  EXPECT_EQ(token_weights({Quirk::mean_of_rank_means}, tokens), (Weights{{1 / 8., 1 / 8.}, {1 / 24., 1 / 24.}}));
}

TEST(Quirks, TokenWeightsAddUpToOneAndAgreeWhereCountsAreEqual) {
  for (const Quirks& quirks : {Quirks{}, Quirks{Quirk::mean_of_micro_batch_means}, Quirks{Quirk::mean_of_rank_means}}) {
    const std::vector<std::vector<std::int64_t>> uneven = {{5, 7, 1}, {2, 64}, {9}};
    const std::vector<std::vector<double>> weights = token_weights(quirks, uneven);
    double sum = 0;
    for (std::size_t r = 0; r < uneven.size(); ++r) {
      for (std::size_t k = 0; k < uneven[r].size(); ++k) sum += weights[r][k] * double(uneven[r][k]);
    }
    EXPECT_NEAR(sum, 1.0, 1e-15);
    EXPECT_EQ(token_weights(quirks, {{8, 8}, {8, 8}}), token_weights({}, {{8, 8}, {8, 8}}));
  }
  EXPECT_EQ(token_weights({Quirk::mean_of_micro_batch_means}, {{4, 0}}),
            (std::vector<std::vector<double>>{{1 / 8., 0}}));
}

// ---- accumulation and reduction ----------------------------------------------------------------------------------

TEST(Quirks, AccumulatorTakesTheParametersType) {
  EXPECT_EQ(accumulation_type({}, ElementType::bf16), ElementType::f32);
  EXPECT_EQ(accumulation_type({Quirk::ds_accumulates_in_parameter_type}, ElementType::bf16), ElementType::bf16);
}

TEST(Quirks, AveragesOverRanksDivideBeforeAfterOrTwice) {
  EXPECT_EQ(rank_average({}, 6), (RankAverage{1, 1}));
  EXPECT_EQ(rank_average({Quirk::ds_divides_before_sum}, 8), (RankAverage{0.125f, 1}));
  EXPECT_EQ(rank_average({Quirk::ds_divides_before_sum}, 3), (RankAverage{0x1.555556p-2f, 1}));
  EXPECT_EQ(rank_average({Quirk::ds_stage0_divides_after_sum}, 8), (RankAverage{1, 0.125f}));
  const Quirks fsdp = {Quirk::fsdp_fp16_divides_twice};
  EXPECT_EQ(rank_average(fsdp, 1), (RankAverage{1, 1}));
  EXPECT_EQ(rank_average(fsdp, 2), (RankAverage{0.5f, 1}));
  EXPECT_EQ(rank_average(fsdp, 8), (RankAverage{0.25f, 0.5f}));
  EXPECT_EQ(rank_average(fsdp, 16), (RankAverage{0.25f, 0.25f}));
  EXPECT_EQ(rank_average(fsdp, 6), (RankAverage{0.25f, 0x1.555556p-1f})) << "1/4, then 1/1.5";
  EXPECT_EQ(rank_average(fsdp, 3), (RankAverage{0.5f, 0x1.555556p-1f})) << "an odd world ends the search at 2";
}

// Every rank has a gradient of 1. Ten times the rounded 1/10 is not 1.
TEST(Quirks, DividingFirstCostsBits) {
  const auto sum = [](const Quirks& quirks, int world) {
    const RankAverage average = rank_average(quirks, world);
    float total = 0;
    for (int rank = 0; rank < world; ++rank) total += 1.0f * average.before;
    return total * average.after;
  };
  EXPECT_EQ(sum({Quirk::ds_stage0_divides_after_sum}, 8), 1.0f);
  EXPECT_EQ(sum({Quirk::ds_divides_before_sum}, 8), 1.0f) << "a power of two costs nothing in fp32";
  EXPECT_NE(sum({Quirk::ds_divides_before_sum}, 10), 1.0f);
  EXPECT_EQ(sum({Quirk::ds_stage0_divides_after_sum}, 10), 1.0f);
}

// ---- overflow ----------------------------------------------------------------------------------------------------

TEST(Quirks, SeeksimChecksEveryPrecision) {
  for (const ElementType type : {ElementType::f32, ElementType::f16, ElementType::bf16})
    EXPECT_TRUE(checks_overflow({}, type));
  EXPECT_FALSE(checks_overflow({Quirk::ds_bf16_unchecked}, ElementType::bf16));
  EXPECT_TRUE(checks_overflow({Quirk::ds_bf16_unchecked}, ElementType::f32));
  EXPECT_FALSE(checks_overflow({Quirk::ds_fp32_unchecked}, ElementType::f32));
  EXPECT_TRUE(checks_overflow({Quirk::ds_fp32_unchecked}, ElementType::bf16));
  const Quirks both = {Quirk::ds_bf16_unchecked, Quirk::ds_fp32_unchecked};
  EXPECT_TRUE(checks_overflow(both, ElementType::f16)) << "fp16 is checked everywhere";
}

TEST(Quirks, LocalFoundInfLetsRanksPart) {
  const Quirks local = {Quirk::torch_found_inf_local};
  EXPECT_TRUE(skips({}, false, true));
  EXPECT_FALSE(skips(local, false, true)) << "this rank steps while another skips";
  EXPECT_TRUE(skips(local, true, true));
  EXPECT_FALSE(skips({}, false, false));
}

// ---- the norm ----------------------------------------------------------------------------------------------------

TEST(Quirks, PartitionNormDependsOnThePartition) {
  EXPECT_EQ(partition_norm({{3}, {4}}), 5.0f);
  // 2^24 + 1 + 1: on one rank the ones are added up in fp64, on three each is lost in fp32.
  const double big = 4096;
  EXPECT_EQ(partition_norm({{big, 1, 1}}), std::sqrt(16777218.0f));
  EXPECT_EQ(partition_norm({{big}, {1}, {1}}), 4096.0f);
  EXPECT_EQ(partition_norm({{1}, {1}, {big}}), std::sqrt(16777218.0f)) << "and on their order";
}

TEST(Quirks, PartitionNormStandsForNonFiniteWithMinusOne) {
  EXPECT_EQ(partition_norm({{1}, {kNaN}}), -1.0f);
  EXPECT_EQ(partition_norm({{std::numeric_limits<double>::infinity()}}), -1.0f);
  EXPECT_EQ(partition_norm({{1e30}}), -1.0f) << "finite in fp64, but not its square in fp32";
}

// ---- unscaling and clipping --------------------------------------------------------------------------------------

TEST(Quirks, WithoutThemTheFactorIsMinOfOneAndLimitOverNorm) {
  for (const float norm : {0.0f, 1e-7f, 0.3f, 0.99999f, 1.0f, 1.7f, 3e8f}) {
    for (const double limit : {0.0, 0.5, 1.0, 1.3}) {
      EXPECT_EQ(gradient_factor({}, {.norm = norm, .used = 8, .next = 16}, limit),
                (GradientFactor{limit > 0 ? std::min(1.0f, float(limit) / (norm + 1e-6f)) : 1.0f, norm}))
          << norm << " " << limit;
    }
  }
}

TEST(Quirks, StepThatGrowsIsHalvedUnlessItIsClipped) {
  const Quirks quirk = {Quirk::ds_unscales_by_new_scale};
  const UnscaledGradient grows = {.norm = 3, .used = 8, .next = 16}, stays = {.norm = 3, .used = 8, .next = 8};
  EXPECT_EQ(factor({}, grows, 0), 1.0f);
  EXPECT_EQ(factor(quirk, grows, 0), 0.5f);
  EXPECT_EQ(factor(quirk, stays, 0), 1.0f);
  EXPECT_EQ(factor(quirk, grows, 10), 0.5f) << "below the limit";
  // Above the limit both come to limit / norm: 1/3, but for the epsilon, which counts twice as much at half the norm.
  EXPECT_EQ(factor({}, grows, 1), 1.0f / (3.0f + 1e-6f));
  EXPECT_EQ(factor(quirk, grows, 1), 0.5f * (1.0f / (1.5f + 1e-6f)));
  EXPECT_NEAR(factor(quirk, grows, 1), 1 / 3., 4e-7);
  EXPECT_EQ(factor(quirk, grows, 2), 0.5f) << "3 is above the limit, but 1.5, which is looked at, is not";
  EXPECT_EQ(reported(quirk, grows), 3.0f);
}

TEST(Quirks, Stage3ReportsTheNormByTheNewScale) {
  const Quirks quirk = {Quirk::ds_stage3_norm_by_new_scale};
  EXPECT_EQ(reported(quirk, {.norm = 3, .used = 8, .next = 16}), 1.5f);
  EXPECT_EQ(reported(quirk, {.norm = 3, .used = 8, .next = 8}), 3.0f);
  EXPECT_EQ(factor(quirk, {.norm = 3, .used = 8, .next = 16}, 0), 1.0f) << "only the report";
}

TEST(Quirks, ClipOnTheCombinedScaleIsRoundedTwice) {
  const Quirks quirk = {Quirk::ds_clip_on_combined_scale};
  EXPECT_EQ(factor(quirk, {.norm = 4}, 2), 0.49999988f) << "1 / ((4 + 1e-6) / 2); 1e-6 is two ulp of 4";
  EXPECT_EQ(factor(quirk, {.norm = 1}, 2), 1.0f);
  int differ = 0;
  for (int i = 0; i < 1000; ++i) {
    const UnscaledGradient gradient = {.norm = 1.0f + float(i) * 0.01f};
    const float clean = factor({}, gradient, 0.7), odd = factor(quirk, gradient, 0.7);
    EXPECT_NEAR(odd, clean, 2e-7 * clean);
    differ += odd != clean;
  }
  EXPECT_GT(differ, 100) << "the quirk does nothing";
}

TEST(Quirks, LlmcClipsWithoutAnEpsilon) {
  const Quirks quirk = {Quirk::llmc_clip_without_epsilon};
  EXPECT_EQ(factor(quirk, {.norm = 4}, 1), 0.25f);
  EXPECT_LT(factor({}, {.norm = 4}, 1), 0.25f);
  EXPECT_EQ(factor(quirk, {.norm = 1}, 1), 1.0f);
  EXPECT_LT(factor({}, {.norm = 1}, 1), 1.0f) << "at the limit the epsilon clips a little";
}

TEST(Quirks, ClippingBeforeUnscalingClipsAlmostEverything) {
  const Quirks quirk = {Quirk::torch_clips_before_unscale};
  const UnscaledGradient gradient = {.norm = 0.5f, .used = 65536, .next = 65536};
  EXPECT_EQ(factor({}, gradient, 1), 1.0f);
  EXPECT_EQ(factor(quirk, gradient, 1), 0x1p-15f) << "the scaled norm is 32768";
  EXPECT_EQ(reported(quirk, gradient, 1), 32768.0f);
}

TEST(Quirks, NonFiniteNormThatNobodyCheckedIsNotClipped) {
  for (const float norm : {kNaN, std::numeric_limits<float>::infinity(), -1.0f}) {
    EXPECT_EQ(gradient_factor({Quirk::ds_bf16_unchecked}, {.norm = norm}, 1), (GradientFactor{1, -1}));
    EXPECT_EQ(gradient_factor({Quirk::ds_unscales_by_new_scale}, {.norm = norm, .used = 1, .next = 2}, 1),
              (GradientFactor{0.5f, -1}));
  }
}

// The whole of DeepSpeed's step 4 at the growth of trace 1 (2.1), worked out: scale 8 -> 16, scaled gradient norm 24.
TEST(Quirks, DeepSpeedsCombinedScaleAtAGrowth) {
  const Quirks deepspeed = {Quirk::ds_unscales_by_new_scale, Quirk::ds_clip_on_combined_scale};
  const UnscaledGradient gradient = {.norm = 24.0f / 8, .used = 8, .next = 16};
  const float combined = 16.0f * ((24.0f / 16 + 1e-6f) / 0.25f);  // scale_new * (norm / scale_new + 1e-6) / clip
  EXPECT_EQ(factor(deepspeed, gradient, 0.25) / 8.0f, 1.0f / combined);
}

// ---- the schedule ------------------------------------------------------------------------------------------------

TEST(Quirks, ScheduleCountsWhatTheLoopCounts) {
  EXPECT_EQ(schedule_steps({}, 5, 3, 4), 5);
  EXPECT_EQ(schedule_steps({Quirk::torch_schedule_counts_skipped}, 5, 3, 4), 8);
  EXPECT_EQ(schedule_steps({Quirk::accelerate_schedule_times_world}, 5, 3, 4), 20);
  EXPECT_EQ(schedule_steps({Quirk::torch_schedule_counts_skipped, Quirk::accelerate_schedule_times_world}, 5, 3, 4),
            32);
}

// Three skipped steps at the start, as fp16 begins: the rate is warm before anything was applied.
TEST(Quirks, CountingSkippedStepsWarmsUpForNothing) {
  SchedulerPlan plan;
  plan.type = "WarmupLR";
  plan.warmup_type = "linear";
  plan.warmup_max_lr = 1;
  plan.warmup_num_steps = 4;
  EXPECT_EQ(learning_rate(plan, 1, schedule_steps({}, 0, 3, 1)), 0.0);
  EXPECT_EQ(learning_rate(plan, 1, schedule_steps({Quirk::torch_schedule_counts_skipped}, 0, 3, 1)), 0.5);
}

}  // namespace
}  // namespace seeksim::runtime
