#include "runtime/plan/mutated_definition.h"

#include <utility>

namespace seeksim::runtime {
namespace {

// As if a quirk had been asked for.
Quirk same_quirk(Mutant mutant) {
  switch (mutant) {
    case Mutant::schedule_counts_skipped:
      return Quirk::torch_schedule_counts_skipped;
    case Mutant::clip_without_epsilon:
      return Quirk::llmc_clip_without_epsilon;
    case Mutant::clip_before_unscale:
      return Quirk::torch_clips_before_unscale;
    case Mutant::norm_by_new_scale:
      return Quirk::ds_unscales_by_new_scale;
    case Mutant::mean_of_micro_batch_means:
      return Quirk::mean_of_micro_batch_means;
    default:
      return Quirk::count_;
  }
}

void mutate_optimizer(Mutant mutant, OptimizerPlan& plan) {
  if (mutant == Mutant::betas_swapped) std::swap(plan.betas[0], plan.betas[1]);
  if (mutant == Mutant::epsilon_missing) plan.eps = 0;
  if (mutant == Mutant::decay_off) plan.weight_decay = 0;
  if (mutant == Mutant::decay_on_all) plan.decay_all = true;
  if (mutant == Mutant::decay_as_l2) plan.type = "Adam";
}

void mutate_scaler(Mutant mutant, LossScalerPlan& plan) {
  if (mutant == Mutant::fp16_without_scale) plan.kind = LossScalerKind::none;
  if (mutant == Mutant::scaler_grows_one_step_late) ++plan.loss_scale_window;
  if (mutant == Mutant::scaler_ignores_hysteresis) plan.hysteresis = 1;
  if (mutant == Mutant::torch_backs_off_to_a_quarter) plan.backoff_factor = 0.25;
  if (mutant == Mutant::torch_grows_one_step_late) ++plan.growth_interval;
}

void mutate_model(Mutant mutant, ModelPlan& plan) {
  if (mutant == Mutant::dropout_off) plan.dropout = {};
  if (mutant == Mutant::norm_epsilon_missing) plan.norm_eps = 0;
  if (mutant == Mutant::rms_norm_epsilon_of_gpt2) plan.norm_eps = plan.norm_eps == 1e-5 ? 1e-6 : 1e-5;
  if (mutant == Mutant::rotary_base_changed) plan.rope_theta *= 50;
  if (mutant == Mutant::frozen_parameter_moves) plan.frozen.clear();
  if (mutant == Mutant::experts_gates_not_normalized) plan.experts.normalized = false;
  if (mutant == Mutant::experts_one_choice_less) --plan.experts.per_token;
  if (mutant == Mutant::experts_balance_lost) plan.experts.balance = 0;
  if (mutant == Mutant::experts_z_loss_lost) plan.experts.z = 0;
  if (mutant == Mutant::experts_capacity_ignored) plan.experts.capacity_factor = 0;
  if (mutant == Mutant::experts_counted_by_sample) plan.experts.samples = 1;
  if (mutant == Mutant::deepseek_gates_of_softmax) plan.experts.sigmoid = false;
  if (mutant == Mutant::deepseek_scale_lost) plan.experts.scale = 1;
}

}  // namespace

bool edits_definition(Mutant mutant) { return mutant != Mutant::none && info(mutant).point == "definition"; }

void mutate(Mutant mutant, Definition& d) {
  if (!edits_definition(mutant)) return;
  if (const Quirk quirk = same_quirk(mutant); quirk != Quirk::count_) d.quirks.add(quirk);
  mutate_optimizer(mutant, d.optimizer);
  mutate_scaler(mutant, d.scaler);
  mutate_model(mutant, d.model);
  PrecisionPlan& precision = d.precision;
  if (mutant == Mutant::masters_lost) precision.master_weights = false;
  if (mutant == Mutant::gradients_in_the_other_type)
    precision.gradients = precision.gradients == ElementType::f32 ? precision.compute : ElementType::f32;
  if (mutant == Mutant::schedule_ends_one_step_early) --d.scheduler.total_num_steps;
  if (mutant == Mutant::warmup_linear_for_log) d.scheduler.warmup_type = "linear";
  if (mutant == Mutant::training_seed_ignored) d.training_seed = 1;
}

}  // namespace seeksim::runtime
