// The digest that distinguishes training runs.
#include "runtime/decide/run_state.h"

#include <bit>
#include <string_view>

#include "kernels/digest.h"
#include "runtime/layout/parameters.h"
#include "runtime/plan/optimizer_kinds.h"

namespace seeksim::runtime {
namespace {

class Mixer {
 public:
  void operator()(std::uint64_t value) { hash_ = kernels::combine(hash_, value); }
  void operator()(double value) { (*this)(std::bit_cast<std::uint64_t>(value)); }
  void operator()(std::string_view text) {
    (*this)(std::uint64_t(text.size()));
    for (const char c : text) (*this)(std::uint64_t(static_cast<unsigned char>(c)));
  }
  template <class... Values>
  void all(const Values&... values) {
    (one(values), ...);
  }
  std::uint64_t value() const { return hash_; }

 private:
  template <class T>
  void one(const T& value) {
    if constexpr (std::is_enum_v<T> || std::is_integral_v<T>)
      (*this)(std::uint64_t(value));
    else if constexpr (std::is_floating_point_v<T>)
      (*this)(double(value));
    else
      (*this)(std::string_view(value));
  }
  std::uint64_t hash_ = 0;
};

void mix_model(Mixer& mix, const ModelPlan& m) {
  mix.all(m.family, m.layers, m.width, m.heads, m.context, m.vocab, m.tied, m.logit_scale, m.init_stddev, m.norm_eps,
          m.dropout.embedding, m.dropout.attention, m.dropout.residual);
  if (m.llama()) mix.all(m.key_heads(), m.hidden(), m.rope_theta);
  if (m.fused_attention) mix("fused attention");
  if (m.segmented_gradients) mix("segmented gradients");
  if (const ExpertsPlan& x = m.experts; x.on())
    mix.all(x.count, x.per_token, x.capacity_factor, x.normalized, x.balance, x.z);
  if (const ExpertsPlan& x = m.experts; x.deepseek())
    mix.all("deepseek", x.sigmoid, x.scale, x.shared, x.dense_layers, m.dense_hidden());
  if (m.experts.slabs) mix("slabs of experts");
  for (const std::string& name : frozen_names(m)) mix(name);
}

void mix_data(Mixer& mix, const DataPlan& data) {
  mix.all(data.synthetic, data.bytes, std::uint64_t(data.tokens.size()));
  for (const std::int32_t token : data.tokens) mix(std::uint64_t(token));
  if (data.held_out_bytes > 0) mix.all("held out", data.held_out_bytes);
  if (const SamplerPlan& s = data.sampler; s.on()) mix.all("sampler", s.order, s.seed, s.samples, s.drop_last);
  if (data.packing.on()) mix.all("packing", data.packing.separator);
}

void mix_curriculum(Mixer& mix, const CurriculumPlan& c) {
  if (!c.on()) return;
  mix.all("curriculum", c.schedule, c.min_difficulty, c.max_difficulty, c.total_step, c.difficulty_step, c.root_degree);
  for (const std::int64_t tokens : c.difficulties) mix(std::uint64_t(tokens));
  for (const std::int64_t step : c.max_steps) mix(std::uint64_t(step));
}

void mix_schedule(Mixer& mix, const OptimizerPlan& o, const SchedulerPlan& s) {
  mix.all(o.type, o.lr, o.betas[0], o.betas[1], o.eps, o.weight_decay, o.decay_all);
  if (kind_of(o).takes_matrices) mix.all(o.momentum, o.adamw_rate);
  if (kind_of(o).rule == kernels::OptimizerRule::sgd) mix.all(o.momentum, o.dampening, o.nesterov);
  if (keeps_mean(o)) mix.all("mean of weights", o.ema_decay);
  mix.all(s.type, s.warmup_min_lr, s.warmup_max_lr, s.warmup_num_steps, s.total_num_steps, s.warmup_type,
          s.warmup_min_ratio, s.cos_min_ratio);
  for (const double rate : s.table) mix(rate);
}

void mix_precision(Mixer& mix, const PrecisionPlan& p, const LossScalerPlan& s) {
  mix.all(p.compute, p.gradients, p.master_weights);
  if (p.stochastic_rounding) mix("stochastic rounding");
  mix.all(s.kind, s.loss_scale, s.initial_scale_power, s.loss_scale_window, s.hysteresis, s.consecutive_hysteresis,
          s.min_loss_scale, s.raise_error_at_min_scale, s.init_scale, s.growth_factor, s.backoff_factor,
          s.growth_interval, s.enabled);
}

}  // namespace

std::uint64_t definition_digest(const Definition& d, std::int64_t steps) {
  Mixer mix;
  mix(d.training_seed);
  mix_model(mix, d.model);
  mix_data(mix, d.data);
  mix_curriculum(mix, d.curriculum);
  mix_schedule(mix, d.optimizer, d.scheduler);
  mix_precision(mix, d.precision, d.scaler);
  if (const CompressionPlan& c = d.compression; c.on()) mix.all(c.method, c.groups, c.error_feedback, c.top);
  if (const CompressionPlan& c = d.compression; c.of_momentum()) mix.all("momentum", c.optimizer, c.start_step);
  if (const CompressionPlan& c = d.compression; c.in_factors()) mix.all("factors", c.rank, c.warm_start, c.start_step);
  const bool takes_a_rate = d.local_sgd.outer.type != OuterRule::average;
  if (const LocalSgdPlan& l = d.local_sgd; l.on())
    mix.all("local sgd", l.workers, l.every, l.outer.type, takes_a_rate ? l.outer.lr : 0,
            takes_a_rate ? l.outer.momentum : 0);
  if (const StalenessPlan& s = d.staleness; s.on()) {
    mix.all("late gradients", s.workers, s.bound, s.delays, s.seed);
    for (const int delay : s.of_workers) mix(std::uint64_t(delay));
  }
  if (const Fp8Plan& f = d.fp8; f.on())
    mix.all("fp8", f.scaling, f.format, f.keeps_state() ? f.amax_history_len : 0, f.most_recent, f.margin,
            f.power_2_scale);
  mix.all(d.gradient_clipping, d.global_batch, d.initial_weights);
  for (const std::int64_t step : d.skip_steps) mix(std::uint64_t(step));
  for (const std::int64_t batch : d.drop_batches) mix(std::uint64_t(batch));
  for (const Change& change : d.changes) {
    if (change.step >= steps) break;
    mix.all("change", change.step, change.lr_scale.value_or(-1), change.gradient_clipping.value_or(-1));
  }
  for (const QuirkInfo& quirk : quirk_catalogue()) {
    if (d.quirks.has(quirk.quirk)) mix(quirk.name);
  }
  return mix.value();
}

}  // namespace seeksim::runtime
