// The catalogue out of the rows of quirks.inl, then one function a point.
#include "runtime/rules/quirks.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "kernels/check.h"
#include "runtime/rules/host_math.h"
#include "runtime/seams/enum_names.h"

namespace seeksim::runtime {
namespace {

constexpr std::array kQuirkCatalogue = {
#define SEEKSIM_QUIRK(id, ...) QuirkInfo{.quirk = Quirk::id, .name = #id, __VA_ARGS__},
#include "runtime/rules/quirks.inl"
#undef SEEKSIM_QUIRK
};
static_assert(kQuirkCatalogue.size() == std::size_t(Quirk::count_));

float clean_coefficient(float norm, float limit) {
  const float coefficient = limit / (norm + 1e-6f);
  return coefficient < 1.0f ? coefficient : 1.0f;
}

}  // namespace

std::string_view name(QuirkPoint point) {
  constexpr EnumNames<QuirkPoint> kNames({{QuirkPoint::plan, "plan"},
                                          {QuirkPoint::initial_state, "initial_state"},
                                          {QuirkPoint::loss, "loss"},
                                          {QuirkPoint::accumulation, "accumulation"},
                                          {QuirkPoint::reduction, "reduction"},
                                          {QuirkPoint::overflow_check, "overflow_check"},
                                          {QuirkPoint::vote, "vote"},
                                          {QuirkPoint::norm, "norm"},
                                          {QuirkPoint::unscale_clip, "unscale_clip"},
                                          {QuirkPoint::schedule, "schedule"}});
  return kNames.of(point, "unknown");
}

std::span<const QuirkInfo> quirk_catalogue() { return kQuirkCatalogue; }

const QuirkInfo& info(Quirk quirk) {
  SEEKSIM_CHECK(quirk < Quirk::count_, "quirk %d", int(quirk));
  return kQuirkCatalogue[std::size_t(quirk)];
}

std::optional<Quirk> quirk_named(std::string_view name) {
  const auto row = std::ranges::find(kQuirkCatalogue, name, &QuirkInfo::name);
  return row == kQuirkCatalogue.end() ? std::nullopt : std::optional(row->quirk);
}

bool Quirks::split_dependent() const {
  return std::ranges::any_of(kQuirkCatalogue,
                             [this](const QuirkInfo& row) { return row.split_dependent && has(row.quirk); });
}

bool Quirks::act_at(QuirkPoint point) const {
  return std::ranges::any_of(kQuirkCatalogue,
                             [&](const QuirkInfo& row) { return row.point == point && has(row.quirk); });
}

std::string Quirks::conflict() const {
  for (const QuirkInfo& a : kQuirkCatalogue) {
    for (const QuirkInfo& b : kQuirkCatalogue) {
      if (a.quirk < b.quirk && has(a.quirk) && has(b.quirk) && !a.rival.empty() && a.rival == b.rival)
        return fmt::format("{} and {} both decide the {}: keep one", a.name, b.name, a.rival);
    }
  }
  return {};
}

std::vector<std::string> quirk_names(const Quirks& quirks) {
  std::vector<std::string> names;
  for (const QuirkInfo& row : kQuirkCatalogue) {
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

int samples_of_routing(const Quirks& quirks, int given, int micro_batch) {
  return quirks.has(Quirk::experts_by_micro_batch) ? micro_batch : given;
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
  // Only a step whose gradients were not checked gets here with a norm like this.
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
