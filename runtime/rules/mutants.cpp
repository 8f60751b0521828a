// The catalogue of mutants, and what each does to a number.
#include "runtime/rules/mutants.h"

#include <algorithm>
#include <array>

#include "kernels/check.h"
#include "kernels/host_access.h"
#include "runtime/rules/host_math.h"

namespace seeksim::runtime {
namespace {

constexpr std::array kCatalogue = {
#define SEEKSIM_MUTANT(name, point, shows, does, source) MutantInfo{Mutant::name, #name, point, shows, does, source},
#include "runtime/rules/mutants.inl"
#undef SEEKSIM_MUTANT
};
static_assert(kCatalogue.size() + 1 == std::size_t(Mutant::count_));

}  // namespace

std::span<const MutantInfo> mutant_catalogue() { return kCatalogue; }

const MutantInfo& info(Mutant mutant) {
  SEEKSIM_CHECK(mutant != Mutant::none && mutant < Mutant::count_, "mutant %d", int(mutant));
  return kCatalogue[std::size_t(mutant) - 1];
}

std::optional<Mutant> mutant_named(std::string_view name) {
  const auto row = std::ranges::find(kCatalogue, name, &MutantInfo::name);
  return row == kCatalogue.end() ? std::nullopt : std::optional(row->mutant);
}

// ---- data and randomness -------------------------------------------------------------------------------------------

std::int64_t step_of_batch(Mutant mutant, std::int64_t step) {
  if (mutant == Mutant::same_batch_each_step) return 0;
  return mutant == Mutant::batches_replayed ? step % 2 : step;
}

std::int64_t first_sample(Mutant mutant, std::int64_t first) {
  return mutant == Mutant::position_off_by_one ? first + 1 : first;
}

std::uint64_t data_seed(Mutant mutant, std::uint64_t seed) { return mutant == Mutant::data_seed_ignored ? 0 : seed; }

std::int64_t source_of_sample(Mutant mutant, std::int64_t i) {
  return mutant == Mutant::same_sample_in_micro_batch ? 0 : i;
}

std::int64_t target_shift(Mutant mutant) { return mutant == Mutant::labels_not_shifted ? 0 : 1; }

DropoutCounters dropout_counters(Mutant mutant, DropoutCounters right, bool backward) {
  if (mutant == Mutant::dropout_of_backward_differs && backward) ++right.step;
  if (mutant == Mutant::dropout_step_ignored) right.step = 0;
  if (mutant == Mutant::dropout_seed_ignored) right.seed = 0;
  if (mutant == Mutant::dropout_counts_in_micro_batch) right.first_sample = 0;
  return right;
}

// ---- losses, norms and factors -------------------------------------------------------------------------------------

float loss_weight(Mutant mutant, const WindowPlace& place) {
  const auto all = static_cast<float>(place.micro_batches);
  if (mutant == Mutant::division_lost) return all;
  if (mutant == Mutant::divided_twice) return 1.0f / all;
  if (mutant == Mutant::tail_divided_by_full_window)
    return static_cast<float>(place.full_samples) / static_cast<float>(place.samples);
  if (mutant == Mutant::divided_by_tokens_but_one)
    return static_cast<float>(place.tokens) / static_cast<float>(place.tokens - 1);
  return mutant == Mutant::divided_by_samples ? static_cast<float>(place.tokens) : 1.0f;
}

bool counts_in_norm(Mutant mutant, bool matrix, bool first_parameter) {
  if (mutant == Mutant::norm_of_matrices_only) return matrix;
  return mutant != Mutant::norm_without_embedding || !first_parameter;
}

float norm_of_step(Mutant mutant, float norm, double scale, std::int64_t parameters) {
  if (mutant == Mutant::norm_averaged) return norm / host_sqrt(static_cast<float>(parameters));
  if (mutant == Mutant::norm_not_unscaled) return norm * static_cast<float>(scale);
  return mutant == Mutant::bf16_divided_by_65536 ? norm / 65536.0f : norm;
}

float clip_factor(Mutant mutant, float factor, double limit, float norm, double scale) {
  const auto bound = static_cast<float>(limit);
  if (mutant == Mutant::clip_always) return bound / norm;
  if (mutant == Mutant::clip_twice) return factor * factor;
  if (mutant == Mutant::clip_by_squared_norm) return std::min(1.0f, bound / (norm * norm + 1e-6f));
  if (mutant == Mutant::bf16_divided_by_65536) return factor / 65536.0f;
  return mutant == Mutant::unscale_missing ? factor * static_cast<float>(scale) : factor;
}

// ---- the optimizer -------------------------------------------------------------------------------------------------

std::int64_t rate_position(Mutant mutant, std::int64_t applied) {
  if (mutant == Mutant::schedule_one_step_late) return std::max<std::int64_t>(0, applied - 1);
  return mutant == Mutant::schedule_one_step_early ? applied + 1 : applied;
}

kernels::OptimizerStep optimizer_constants(Mutant mutant, kernels::OptimizerStep right, float decay, bool decays,
                                           std::int64_t steps) {
  kernels::OptimizerStep step = right;
  step.weight_decay = decays ? decay : 0.0f;
  switch (mutant) {
    case Mutant::bias_correction_missing:
      step.inverse_bias1 = step.inverse_sqrt_bias2 = 1;
      break;
    case Mutant::bias_correction_one_step_ahead: {
      double power1 = 1, power2 = 1;
      for (std::int64_t i = 0; i <= steps; ++i) power1 *= double(step.beta1), power2 *= double(step.beta2);
      step.inverse_bias1 = static_cast<float>(1.0 / (1.0 - power1));
      step.inverse_sqrt_bias2 = static_cast<float>(1.0 / host_sqrt(1.0 - power2));
      break;
    }
    case Mutant::second_bias_without_root:
      step.inverse_sqrt_bias2 *= step.inverse_sqrt_bias2;
      break;
    case Mutant::decay_on_vectors_only:
      step.weight_decay = decays ? 0.0f : decay;
      break;
    case Mutant::decay_without_rate:
      if (step.lr > 0) step.weight_decay /= step.lr;
      break;
    case Mutant::second_moment_forgets:
      step.beta2 = 0, step.one_minus_beta2 = 1;
      break;
    default:
      break;
  }
  return step;
}

bool replaces_update(Mutant mutant, kernels::OptimizerRule rule) {
  if (rule == kernels::OptimizerRule::lion)
    return mutant == Mutant::lion_signs_new_moment || mutant == Mutant::lion_moves_by_value;
  if (rule == kernels::OptimizerRule::momentum || rule == kernels::OptimizerRule::nesterov)
    return mutant == Mutant::sgd_rate_in_momentum || mutant == Mutant::sgd_decay_outside_momentum;
  if (kernels::moments_of(rule) == 0) return false;
  if (rule == kernels::OptimizerRule::frozen) return false;
  return mutant == Mutant::epsilon_inside_root || mutant == Mutant::epsilon_before_correction ||
         mutant == Mutant::decay_after_update || mutant == Mutant::update_by_old_moment;
}

namespace {

void mutated_adamw(Mutant mutant, kernels::Lane lane, const kernels::OptimizerStep& step,
                   kernels::Vec<const float> gradient, kernels::Vec<float> weights, kernels::Vec<float> first,
                   kernels::Vec<float> second) {
  const kernels::OnHost<float> g(lane, gradient);
  const auto one = [&](kernels::Index i, float& p, float& m, float& v) {
    const float held = g[i] * step.grad_factor, before = m;
    m = step.beta1 * m + step.one_minus_beta1 * held;
    v = step.beta2 * v + step.one_minus_beta2 * held * held;
    float root = host_sqrt(v) * step.inverse_sqrt_bias2 + step.eps;
    if (mutant == Mutant::epsilon_inside_root) root = host_sqrt(v + step.eps) * step.inverse_sqrt_bias2;
    if (mutant == Mutant::epsilon_before_correction) root = (host_sqrt(v) + step.eps) * step.inverse_sqrt_bias2;
    const float moment = mutant == Mutant::update_by_old_moment ? before : m;
    const float update = step.lr * (moment * step.inverse_bias1 / root), decay = step.lr * step.weight_decay;
    p = mutant == Mutant::decay_after_update ? (p - update) - decay * (p - update) : (p - decay * p) - update;
  };
  kernels::change_on_host(lane, weights, [&](kernels::Vec<float> p) {
    kernels::change_on_host(lane, first, [&](kernels::Vec<float> m) {
      kernels::change_on_host(lane, second, [&](kernels::Vec<float> v) {
        for (kernels::Index i = 0; i < p.n; ++i) one(i, p[i], m[i], v[i]);
      });
    });
  });
}

void mutated_lion(Mutant mutant, kernels::Lane lane, const kernels::OptimizerStep& step,
                  kernels::Vec<const float> gradient, kernels::Vec<float> weights, kernels::Vec<float> first) {
  const kernels::OnHost<float> g(lane, gradient);
  const auto one = [&](kernels::Index i, float& p, float& m) {
    const float held = g[i] * step.grad_factor, before = m;
    m = step.beta2 * m + step.one_minus_beta2 * held;
    const float old = mutant == Mutant::lion_signs_new_moment ? m : before;
    const float c = step.beta1 * old + step.one_minus_beta1 * held;
    const float sign = c > 0 ? 1.0f : c < 0 ? -1.0f : c;
    p = (p - step.lr * step.weight_decay * p) - step.lr * (mutant == Mutant::lion_moves_by_value ? c : sign);
  };
  kernels::change_on_host(lane, weights, [&](kernels::Vec<float> p) {
    kernels::change_on_host(lane, first, [&](kernels::Vec<float> m) {
      for (kernels::Index i = 0; i < p.n; ++i) one(i, p[i], m[i]);
    });
  });
}

void mutated_sgd(Mutant mutant, kernels::Lane lane, const kernels::OptimizerStep& step,
                 kernels::Vec<const float> gradient, kernels::Vec<float> weights, kernels::Vec<float> first) {
  const kernels::OnHost<float> g(lane, gradient);
  const bool by_rate = mutant == Mutant::sgd_rate_in_momentum;
  const auto one = [&](kernels::Index i, float& p, float& m) {
    const float held = g[i] * step.grad_factor, decay = step.weight_decay * p;
    const float added = by_rate ? step.lr * (held + decay) : held;
    m = step.beta1 * m + step.one_minus_beta1 * added;
    const float ahead = step.rule == kernels::OptimizerRule::nesterov ? step.beta1 * m + added : m;
    p = by_rate ? p - ahead : p - step.lr * (ahead + decay);
  };
  kernels::change_on_host(lane, weights, [&](kernels::Vec<float> p) {
    kernels::change_on_host(lane, first, [&](kernels::Vec<float> m) {
      for (kernels::Index i = 0; i < p.n; ++i) one(i, p[i], m[i]);
    });
  });
}

}  // namespace

void mutated_update(Mutant mutant, kernels::Lane lane, const kernels::OptimizerStep& step,
                    kernels::Vec<const float> gradient, kernels::Vec<float> weights, kernels::Vec<float> first,
                    kernels::Vec<float> second) {
  if (step.rule == kernels::OptimizerRule::lion) return mutated_lion(mutant, lane, step, gradient, weights, first);
  if (kernels::moments_of(step.rule) == 1) return mutated_sgd(mutant, lane, step, gradient, weights, first);
  mutated_adamw(mutant, lane, step, gradient, weights, first, second);
}

}  // namespace seeksim::runtime
