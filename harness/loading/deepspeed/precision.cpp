#include "harness/loading/deepspeed/precision.h"

#include <fmt/format.h>

namespace seeksim::harness {
namespace {

using runtime::ElementType;
using runtime::LossScalerKind;
using runtime::LossScalerPlan;
using runtime::PrecisionPlan;

void read_fp16(const Reader& fp16, Scenario& scenario) {
  PrecisionPlan& precision = scenario.train.definition.precision;
  LossScalerPlan& scaler = scenario.train.definition.scaler;
  precision.compute = precision.gradients = ElementType::f16;
  scaler.loss_scale = fp16.number("loss_scale", 0);
  scaler.kind = scaler.loss_scale == 0 ? LossScalerKind::dynamic : LossScalerKind::static_scale;
  scaler.initial_scale_power = int(fp16.integer("initial_scale_power", scaler.initial_scale_power));
  scaler.loss_scale_window = fp16.integer("loss_scale_window", scaler.loss_scale_window);
  scaler.hysteresis = fp16.integer("hysteresis", scaler.hysteresis);
  scaler.consecutive_hysteresis = fp16.flag("consecutive_hysteresis", false);
  scaler.min_loss_scale = fp16.number("min_loss_scale", scaler.min_loss_scale);
  if (fp16.flag("fp16_master_weights_and_grads", false)) {
    fp16.problem(
        "fp16_master_weights_and_grads", "Not in this version: true",
        "It needs DeepSpeed's CPU Adam. Masters are fp32 here; \"bf16_master_weights_and_grads\" is supported.");
  }
  if (fp16.flag("auto_cast", false))
    scenario.notes.push_back("fp16.auto_cast casts a model's inputs; tokens are integers, so it has no effect here");
}

void read_bf16(const Reader& bf16, Scenario& scenario) {
  PrecisionPlan& precision = scenario.train.definition.precision;
  precision.compute = precision.gradients = ElementType::bf16;
  precision.master_weights = !bf16.flag("bf16_master_weights_and_grads", false);
  if (bf16.flag("bf16_optimizer_states", false)) {
    bf16.problem("bf16_optimizer_states", "Not in this version: true", "Moments are fp32. Set it to false.");
  }
  if (!bf16.flag("check_grad_overflow", true)) {
    scenario.notes.push_back(
        "bf16.check_grad_overflow false: a non-finite gradient skips the step all the same; the quirk "
        "ds_bf16_unchecked does what DeepSpeed's stage 3 does");
  }
}

// How reduced gradients are held; unset, as the model is.
void read_accumulation_type(const Reader& types, PrecisionPlan& precision) {
  const std::string word = types.text("grad_accum_dtype");
  if (word.empty()) return;
  const ElementType asked = word == "fp32"   ? ElementType::f32
                            : word == "fp16" ? ElementType::f16
                            : word == "bf16" ? ElementType::bf16
                                             : ElementType::count_;
  if (asked == ElementType::f32 || asked == precision.compute) {
    precision.gradients = asked;
  } else if (asked == ElementType::count_) {
    types.problem("grad_accum_dtype", fmt::format("there is no type {}", in_quotes(word)), "Use fp32, fp16 or bf16.");
  } else {
    types.problem("grad_accum_dtype", fmt::format("{} for a model in {}", word, std::string(name(precision.compute))),
                  "Use fp32, or the model's type.");
  }
}

void read_grad_scaler(const Reader& keys, Scenario& scenario) {
  if (!keys.has("grad_scaler")) return;
  LossScalerPlan& scaler = scenario.train.definition.scaler;
  if (scenario.train.definition.precision.compute != ElementType::f16) {
    keys.problem("grad_scaler", "torch's GradScaler is for fp16", "Enable deepspeed.fp16, or remove it.");
    return;
  }
  const Reader torch = keys.child("grad_scaler");
  scaler.kind = LossScalerKind::torch;
  scaler.init_scale = torch.number("init_scale", scaler.init_scale);
  scaler.growth_factor = torch.number("growth_factor", scaler.growth_factor);
  scaler.backoff_factor = torch.number("backoff_factor", scaler.backoff_factor);
  scaler.growth_interval = torch.integer("growth_interval", scaler.growth_interval);
  scaler.enabled = torch.flag("enabled", true);
}

}  // namespace

void read_precision(const Reader& deepspeed, const Reader& scenario_keys, Scenario& scenario) {
  runtime::Definition& definition = scenario.train.definition;
  definition.precision = {};
  definition.scaler = {};
  const Reader fp16 = deepspeed.child("fp16"), bf16 = deepspeed.child("bf16");
  const bool half = fp16.flag("enabled", false), brain = bf16.flag("enabled", false);
  if (half && brain) {
    bf16.problem("enabled", "bfloat16 and fp16 modes cannot be simultaneously enabled", "Choose one.");
    return;
  }
  if (half) read_fp16(fp16, scenario);
  if (brain) read_bf16(bf16, scenario);
  read_accumulation_type(deepspeed.child("data_types"), definition.precision);
  read_grad_scaler(scenario_keys, scenario);
  for (const std::string& problem : runtime::problems(definition.scaler)) {
    const bool torch = definition.scaler.kind == LossScalerKind::torch;
    (torch ? scenario_keys : deepspeed).problem(torch ? "grad_scaler" : "fp16", problem, "");
  }
  if (is_16_bit(definition.precision.compute) && definition.model.logit_scale) {
    scenario_keys.problem(
        "model", fmt::format("logit_scale is for fp32, not for {}", std::string(name(definition.precision.compute))),
        "Leave one of the two out.");
  }
}

void write_precision(const Scenario& scenario, Json& deepspeed) {
  const PrecisionPlan& precision = scenario.train.definition.precision;
  const LossScalerPlan& scaler = scenario.train.definition.scaler;
  if (precision.compute == ElementType::f16) {
    deepspeed["fp16"] = {{"enabled", true},
                         {"loss_scale", scaler.loss_scale},
                         {"initial_scale_power", scaler.initial_scale_power},
                         {"loss_scale_window", scaler.loss_scale_window},
                         {"hysteresis", scaler.hysteresis},
                         {"consecutive_hysteresis", scaler.consecutive_hysteresis},
                         {"min_loss_scale", scaler.min_loss_scale}};
  }
  if (precision.compute == ElementType::bf16) {
    deepspeed["bf16"] = {{"enabled", true}, {"bf16_master_weights_and_grads", !precision.master_weights}};
  }
  if (is_16_bit(precision.compute)) {
    deepspeed["data_types"] = {{"grad_accum_dtype", std::string(name(precision.gradients))}};
  }
}

void write_grad_scaler(const Scenario& scenario, Json& scenario_json) {
  const LossScalerPlan& scaler = scenario.train.definition.scaler;
  if (scaler.kind != LossScalerKind::torch) return;
  scenario_json["grad_scaler"] = {{"init_scale", scaler.init_scale},
                                  {"growth_factor", scaler.growth_factor},
                                  {"backoff_factor", scaler.backoff_factor},
                                  {"growth_interval", scaler.growth_interval},
                                  {"enabled", scaler.enabled}};
}

}  // namespace seeksim::harness
