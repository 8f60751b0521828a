// The rows first, then one function a point. Each row names its source: an issue or a file; DS: deepspeedai/DeepSpeed,
// PT: pytorch/pytorch.
#include "runtime/rules/quirks.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "kernels/check.h"
#include "runtime/rules/host_math.h"

namespace seeksim::runtime {
namespace {

constexpr std::array<QuirkInfo, std::size_t(Quirk::count_)> kCatalogue = {{
    {.quirk = Quirk::ds_stage0_scaler,
     .name = "ds_stage0_scaler",
     .framework = "DeepSpeed 0.19.6, fp16 without ZeRO",
     .does = "the loss scale halves at every overflow, without hysteresis, and stays at its minimum without an error: "
             "such a run can skip for ever",
     .instead = "one scaler at every stage, that of ZeRO 1 to 3",
     .point = QuirkPoint::plan,
     .edits = "hysteresis 1, consecutive_hysteresis false, raise_error_at_min_scale false",
     .split_dependent = false,
     .rival = "",
     .source = "DS runtime/fp16/fused_optimizer.py _update_scale; DS #1958"},
    {.quirk = Quirk::ds_old_default_clipping,
     .name = "ds_old_default_clipping",
     .framework = "DeepSpeed before 2026-06-23",
     .does = "a configuration without gradient_clipping does not clip",
     .instead = "it clips at 1.0, the default of DeepSpeed 0.19.6",
     .point = QuirkPoint::plan,
     .edits = "the default of gradient_clipping",
     .split_dependent = false,
     .rival = "",
     .source = "DS #8068 (442166559), runtime/constants.py"},
    {.quirk = Quirk::ds_stage0_stray_adam_step,
     .name = "ds_stage0_stray_adam_step",
     .framework = "DeepSpeed 0.19.6, fp16 without ZeRO",
     .does = "one optimizer step with zero gradients before training: Adam's bias correction is one step ahead and "
             "every decaying weight has decayed once",
     .instead = "Adam's first step is its first",
     .point = QuirkPoint::initial_state,
     .edits = "Adam's step count (1) and the weights (one decoupled decay)",
     .split_dependent = false,
     .rival = "",
     .source = "DS runtime/fp16/fused_optimizer.py initialize_optimizer_states; DS #966"},
    {.quirk = Quirk::ds_stage0_unscaled_loss,
     .name = "ds_stage0_unscaled_loss",
     .framework = "DeepSpeed 0.19.6, fp16 without ZeRO",
     .does = "the loss is not scaled, but the gradient is divided by the scale: too small by the scale, which Adam "
             "without clipping hides",
     .instead = "what is multiplied in is divided out",
     .point = QuirkPoint::loss,
     .edits = "the factor at the loss (1)",
     .split_dependent = false,
     .rival = "",
     .source = "DS runtime/engine.py backward; DS #8393; its bf16 twin DS #7839"},
    {.quirk = Quirk::mean_of_micro_batch_means,
     .name = "mean_of_micro_batch_means",
     .framework = "DeepSpeed 0.19.6; Hugging Face Trainer before its fix",
     .does = "each micro-batch's loss is the mean of its own tokens, and those are averaged over micro-batches and "
             "ranks: tokens of short micro-batches weigh more",
     .instead = "one denominator: all tokens of the step",
     .point = QuirkPoint::loss,
     .edits = "the weight of each token",
     .split_dependent = true,
     .rival = "denominator",
     .source = "DS runtime/engine.py; transformers #34191"},
    {.quirk = Quirk::mean_of_rank_means,
     .name = "mean_of_rank_means",
     .framework = "torch DistributedDataParallel and most loops around it",
     .does = "each rank divides by the tokens that it has, then ranks are averaged: tokens on short ranks weigh more",
     .instead = "one denominator: all tokens of the step",
     .point = QuirkPoint::loss,
     .edits = "the weight of each token",
     .split_dependent = true,
     .rival = "denominator",
     .source = "transformers #34242, #34373; torchtitan #2206"},
    {.quirk = Quirk::ds_accumulates_in_parameter_type,
     .name = "ds_accumulates_in_parameter_type",
     .framework = "DeepSpeed 0.19.6, ZeRO 2",
     .does = "micro-batches are added up in the parameters' type, whatever data_types.grad_accum_dtype says",
     .instead = "fp32 until the root, rounded there once if asked for",
     .point = QuirkPoint::accumulation,
     .edits = "the type of the accumulator",
     .split_dependent = true,
     .rival = "",
     .source = "DS runtime/zero/stage_1_and_2.py; DS #4083 for ZeRO 1"},
    {.quirk = Quirk::ds_divides_before_sum,
     .name = "ds_divides_before_sum",
     .framework = "DeepSpeed 0.19.6, ZeRO 1 to 3",
     .does = "each rank's gradient is divided by the world's size before the sum: in fp16 small values vanish, and "
             "1/3 is rounded",
     .instead = "no rank knows the world's size: one factor at the root",
     .point = QuirkPoint::reduction,
     .edits = "the factors before and after the sum over ranks: 1/world, 1",
     .split_dependent = true,
     .rival = "average",
     .source = "DS runtime/zero/stage_1_and_2.py average_tensor, runtime/comm/coalesced_collectives.py"},
    {.quirk = Quirk::ds_stage0_divides_after_sum,
     .name = "ds_stage0_divides_after_sum",
     .framework = "DeepSpeed 0.19.6 without ZeRO",
     .does = "the sum over ranks is divided by the world's size: in fp16 the sum can overflow first",
     .instead = "no rank knows the world's size: one factor at the root",
     .point = QuirkPoint::reduction,
     .edits = "the factors before and after the sum over ranks: 1, 1/world",
     .split_dependent = true,
     .rival = "average",
     .source = "DS runtime/engine.py allreduce_bucket"},
    {.quirk = Quirk::fsdp_fp16_divides_twice,
     .name = "fsdp_fp16_divides_twice",
     .framework = "torch FSDP2, fp16",
     .does = "a power of two near the root of the world's size is divided out before the sum, the rest after it",
     .instead = "no rank knows the world's size: one factor at the root",
     .point = QuirkPoint::reduction,
     .edits = "the factors before and after the sum over ranks",
     .split_dependent = true,
     .rival = "average",
     .source = "PT torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py _get_gradient_divide_factors"},
    {.quirk = Quirk::ds_bf16_unchecked,
     .name = "ds_bf16_unchecked",
     .framework = "DeepSpeed 0.19.6, ZeRO 3; ZeRO 1 and 2 before 2026-06-26",
     .does = "bf16 gradients are not checked: the norm of a NaN is -1, which means no clipping, and one infinity ends "
             "as NaN in weights and moments",
     .instead = "a non-finite gradient skips the step in every precision",
     .point = QuirkPoint::overflow_check,
     .edits = "whether gradients are checked",
     .split_dependent = false,
     .rival = "",
     .source = "DS runtime/zero/stage3.py; DS #8035 (f0253c866), #4512 (244040c18)"},
    {.quirk = Quirk::ds_fp32_unchecked,
     .name = "ds_fp32_unchecked",
     .framework = "DeepSpeed 0.19.6, ZeRO 1 to 3",
     .does = "fp32 gradients are never checked",
     .instead = "a non-finite gradient skips the step in every precision",
     .point = QuirkPoint::overflow_check,
     .edits = "whether gradients are checked",
     .split_dependent = false,
     .rival = "",
     .source = "DS runtime/zero/stage_1_and_2.py step, runtime/zero/stage3.py"},
    {.quirk = Quirk::torch_found_inf_local,
     .name = "torch_found_inf_local",
     .framework = "torch GradScaler over sharded gradients",
     .does = "found_inf is never reduced over ranks: the ranks that see the infinity skip, the others step, and scales "
             "and weights part",
     .instead = "one vote over all ranks",
     .point = QuirkPoint::vote,
     .edits = "whose flag decides",
     .split_dependent = true,
     .rival = "",
     .source = "PT torch/amp/grad_scaler.py; the same in ZeRO 1 until DS #7580"},
    {.quirk = Quirk::ds_partition_norm,
     .name = "ds_partition_norm",
     .framework = "DeepSpeed 0.19.6, ZeRO 1 and 2",
     .does = "slices' norms in fp64, squares summed on each rank, then in fp32 over ranks in the order of partitions; "
             "-1 stands for a norm that is not finite",
     .instead = "one tree over blocks of the flat parameters, in fp32, the same at every split",
     .point = QuirkPoint::norm,
     .edits = "the norm",
     .split_dependent = true,
     .rival = "",
     .source = "DS runtime/zero/stage_1_and_2.py get_grad_norm_direct, scaled_global_norm"},
    {.quirk = Quirk::ds_unscales_by_new_scale,
     .name = "ds_unscales_by_new_scale",
     .framework = "DeepSpeed 0.19.6",
     .does = "the scale is updated before the gradient is unscaled, and the new one divides: in a step that grows the "
             "scale an unclipped gradient is halved",
     .instead = "the scale that multiplied the loss divides the gradient",
     .point = QuirkPoint::unscale_clip,
     .edits = "the factor of the gradient: used scale / new scale",
     .split_dependent = false,
     .rival = "",
     .source = "DS runtime/zero/stage_1_and_2.py step, runtime/zero/stage3.py, runtime/fp16/fused_optimizer.py"},
    {.quirk = Quirk::ds_stage3_norm_by_new_scale,
     .name = "ds_stage3_norm_by_new_scale",
     .framework = "DeepSpeed 0.19.6, ZeRO 3; ZeRO 1 and 2 before their fix",
     .does = "the norm that is reported is divided by the new scale: half of what it was in a step that grows",
     .instead = "the norm of the gradient as it was",
     .point = QuirkPoint::unscale_clip,
     .edits = "the reported norm",
     .split_dependent = false,
     .rival = "",
     .source = "DS runtime/zero/stage3.py; DS #2686, fixed at ZeRO 1 and 2 by #2695 (fe728e3ed)"},
    {.quirk = Quirk::ds_clip_on_combined_scale,
     .name = "ds_clip_on_combined_scale",
     .framework = "DeepSpeed 0.19.6, ZeRO 1 to 3 and fp16 without ZeRO",
     .does = "the gradient is multiplied by 1 / max(1, (norm + 1e-6) / limit): the same number as seeksim's, rounded "
             "twice",
     .instead = "min(1, limit / (norm + 1e-6))",
     .point = QuirkPoint::unscale_clip,
     .edits = "the clip coefficient",
     .split_dependent = false,
     .rival = "clip",
     .source = "DS runtime/zero/stage_1_and_2.py unscale_and_clip_grads"},
    {.quirk = Quirk::llmc_clip_without_epsilon,
     .name = "llmc_clip_without_epsilon",
     .framework = "llm.c f1e2ace6",
     .does = "limit / norm where norm > limit, without an epsilon",
     .instead = "min(1, limit / (norm + 1e-6))",
     .point = QuirkPoint::unscale_clip,
     .edits = "the clip coefficient",
     .split_dependent = false,
     .rival = "clip",
     .source = "karpathy/llm.c train_gpt2.cu"},
    {.quirk = Quirk::torch_clips_before_unscale,
     .name = "torch_clips_before_unscale",
     .framework = "torch, a loop that clips without unscale_",
     .does = "the limit is held against the scaled norm: with a scale of 65536 almost every step is clipped to nothing",
     .instead = "unscale, then clip",
     .point = QuirkPoint::unscale_clip,
     .edits = "the norm that is clipped and reported: times the scale",
     .split_dependent = false,
     .rival = "clip",
     .source = "PT docs notes/amp_examples; torch/amp/grad_scaler.py unscale_"},
    {.quirk = Quirk::torch_schedule_counts_skipped,
     .name = "torch_schedule_counts_skipped",
     .framework = "torch, a loop that always calls scheduler.step()",
     .does = "the schedule advances on skipped steps: the rate warms up though nothing was applied",
     .instead = "the schedule counts applied steps",
     .point = QuirkPoint::schedule,
     .edits = "the count that the learning rate is a function of",
     .split_dependent = false,
     .rival = "",
     .source = "accelerate #4242"},
    {.quirk = Quirk::accelerate_schedule_times_world,
     .name = "accelerate_schedule_times_world",
     .framework = "Hugging Face Accelerate @16cb6eb8",
     .does = "the wrapped scheduler steps as many times a step as there are processes",
     .instead = "once a step",
     .point = QuirkPoint::schedule,
     .edits = "the count that the learning rate is a function of: times world",
     .split_dependent = true,
     .rival = "",
     .source = "accelerate docs/source/concept_guides/performance.md"},
}};

constexpr bool in_order() {
  for (std::size_t i = 0; i < kCatalogue.size(); ++i) {
    if (std::size_t(kCatalogue[i].quirk) != i) return false;
  }
  return true;
}
static_assert(in_order(), "info() finds a row by its quirk's number");

float clean_coefficient(float norm, float limit) {
  const float coefficient = limit / (norm + 1e-6f);
  return coefficient < 1.0f ? coefficient : 1.0f;
}

}  // namespace

std::string_view name(QuirkPoint point) {
  constexpr std::array<std::string_view, std::size_t(QuirkPoint::count_)> kNames = {
      "plan",           "initial_state", "loss", "accumulation", "reduction",
      "overflow_check", "vote",          "norm", "unscale_clip", "schedule"};
  return point < QuirkPoint::count_ ? kNames[std::size_t(point)] : "unknown";
}

std::span<const QuirkInfo> quirk_catalogue() { return kCatalogue; }

const QuirkInfo& info(Quirk quirk) {
  SEEKSIM_CHECK(quirk < Quirk::count_, "quirk %d", int(quirk));
  return kCatalogue[std::size_t(quirk)];
}

std::optional<Quirk> quirk_named(std::string_view name) {
  const auto row = std::ranges::find(kCatalogue, name, &QuirkInfo::name);
  return row == kCatalogue.end() ? std::nullopt : std::optional(row->quirk);
}

bool Quirks::split_dependent() const {
  return std::ranges::any_of(kCatalogue,
                             [this](const QuirkInfo& row) { return row.split_dependent && has(row.quirk); });
}

std::string Quirks::conflict() const {
  for (const QuirkInfo& a : kCatalogue) {
    for (const QuirkInfo& b : kCatalogue) {
      if (a.quirk < b.quirk && has(a.quirk) && has(b.quirk) && !a.rival.empty() && a.rival == b.rival)
        return fmt::format("{} and {} both decide the {}: keep one", a.name, b.name, a.rival);
    }
  }
  return {};
}

std::vector<std::string> quirk_names(const Quirks& quirks) {
  std::vector<std::string> names;
  for (const QuirkInfo& row : kCatalogue) {
    if (quirks.has(row.quirk)) names.emplace_back(row.name);
  }
  return names;
}

// ---- plan --------------------------------------------------------------------------------------------------------

LossScalerPlan scaler_plan(const Quirks& quirks, LossScalerPlan plan) {
  if (!quirks.has(Quirk::ds_stage0_scaler)) return plan;
  plan.hysteresis = 1;
  plan.consecutive_hysteresis = false;
  plan.raise_error_at_min_scale = false;
  return plan;
}

double default_clipping(const Quirks& quirks) { return quirks.has(Quirk::ds_old_default_clipping) ? 0.0 : 1.0; }

// ---- initial_state -----------------------------------------------------------------------------------------------

OptimizerStart optimizer_start(const Quirks& quirks) {
  if (!quirks.has(Quirk::ds_stage0_stray_adam_step)) return {};
  return {.steps = 1, .decays = 1};
}

// ---- loss --------------------------------------------------------------------------------------------------------

float loss_factor(const Quirks& quirks, double scale) {
  return quirks.has(Quirk::ds_stage0_unscaled_loss) ? 1.0f : static_cast<float>(scale);
}

std::vector<std::vector<double>> token_weights(const Quirks& quirks,
                                               const std::vector<std::vector<std::int64_t>>& tokens) {
  const auto sum = [](const std::vector<std::int64_t>& counts) {
    std::int64_t n = 0;
    for (const std::int64_t count : counts) n += count;
    return n;
  };
  std::int64_t total = 0;
  for (const std::vector<std::int64_t>& of_rank : tokens) total += sum(of_rank);
  const auto ranks = double(tokens.size());
  std::vector<std::vector<double>> weights;
  for (const std::vector<std::int64_t>& of_rank : tokens) {
    std::vector<double>& row = weights.emplace_back();
    for (const std::int64_t count : of_rank) {
      double parts = double(total);
      if (quirks.has(Quirk::mean_of_micro_batch_means)) parts = ranks * double(of_rank.size()) * double(count);
      if (quirks.has(Quirk::mean_of_rank_means)) parts = ranks * double(sum(of_rank));
      row.push_back(count == 0 ? 0.0 : 1.0 / parts);
    }
  }
  return weights;
}

// ---- accumulation, reduction -------------------------------------------------------------------------------------

ElementType accumulation_type(const Quirks& quirks, ElementType parameters) {
  return quirks.has(Quirk::ds_accumulates_in_parameter_type) ? parameters : ElementType::f32;
}

RankAverage rank_average(const Quirks& quirks, int world) {
  const auto inverse = static_cast<float>(1.0 / world);
  if (quirks.has(Quirk::ds_divides_before_sum)) return {inverse, 1};
  if (quirks.has(Quirk::ds_stage0_divides_after_sum)) return {1, inverse};
  if (quirks.has(Quirk::fsdp_fp16_divides_twice)) {
    int before = 1;
    while (world % before == 0 && double(world) / before > before) before *= 2;
    return {static_cast<float>(1.0 / before), static_cast<float>(double(before) / world)};
  }
  return {};
}

// ---- overflow_check, vote ----------------------------------------------------------------------------------------

bool checks_overflow(const Quirks& quirks, ElementType compute) {
  if (compute == ElementType::bf16) return !quirks.has(Quirk::ds_bf16_unchecked);
  if (compute == ElementType::f32) return !quirks.has(Quirk::ds_fp32_unchecked);
  return true;
}

bool skips(const Quirks& quirks, bool own, bool any) { return quirks.has(Quirk::torch_found_inf_local) ? own : any; }

// ---- norm --------------------------------------------------------------------------------------------------------

float partition_norm(const std::vector<std::vector<double>>& slice_norms) {
  float total = 0;
  for (const std::vector<double>& of_rank : slice_norms) {
    double squares = 0;
    for (const double norm : of_rank) squares += norm * norm;
    total += static_cast<float>(squares);
  }
  return host_finite(total) ? host_sqrt(total) : -1.0f;
}

// ---- unscale_clip ------------------------------------------------------------------------------------------------

GradientFactor gradient_factor(const Quirks& quirks, const UnscaledGradient& gradient, double limit) {
  const auto ratio = static_cast<float>(gradient.used / gradient.next);
  const float divided = quirks.has(Quirk::ds_unscales_by_new_scale) ? ratio : 1.0f;
  // Only a step that nobody checked gets here with such a norm.
  if (!host_finite(gradient.norm) || gradient.norm < 0) return {divided, -1.0f};

  const float norm = gradient.norm * divided, scaled = gradient.norm * static_cast<float>(gradient.used);
  const auto bound = static_cast<float>(limit);
  float coefficient = 1;
  if (limit > 0) {
    if (quirks.has(Quirk::ds_clip_on_combined_scale)) {
      coefficient = 1.0f / std::max(1.0f, (norm + 1e-6f) / bound);
    } else if (quirks.has(Quirk::llmc_clip_without_epsilon)) {
      coefficient = norm > bound ? bound / norm : 1.0f;
    } else {
      coefficient = clean_coefficient(quirks.has(Quirk::torch_clips_before_unscale) ? scaled : norm, bound);
    }
  }
  float reported = gradient.norm;
  if (quirks.has(Quirk::ds_stage3_norm_by_new_scale)) reported = gradient.norm * ratio;
  if (quirks.has(Quirk::torch_clips_before_unscale)) reported = scaled;
  return {divided * coefficient, reported};
}

// ---- schedule ----------------------------------------------------------------------------------------------------

std::int64_t schedule_steps(const Quirks& quirks, std::int64_t applied, std::int64_t skipped, int world) {
  const std::int64_t counted = applied + (quirks.has(Quirk::torch_schedule_counts_skipped) ? skipped : 0);
  return quirks.has(Quirk::accelerate_schedule_times_world) ? counted * world : counted;
}

}  // namespace seeksim::runtime
