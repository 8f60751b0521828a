#include "harness/loading/deepspeed/precision.h"

#include <fmt/format.h>

#include <algorithm>

#include "harness/loading/deepspeed/not_built.h"

namespace seeksim::harness {
namespace {

using namespace shapes;
using runtime::Definition;
using runtime::ElementType;
using runtime::LossScalerKind;
using runtime::LossScalerPlan;
using runtime::PrecisionPlan;

template <class... Path>
Binding<Definition> of_scaler(Path... path) {
  return at(&Definition::scaler, path...);
}

// DeepSpeed's words for a type. All of them, as rows of keys want them.
struct TypeWord {
  const char* word;
  ElementType type;
};
constexpr TypeWord kTypes[] = {
    {"fp32", ElementType::f32},          {"float32", ElementType::f32},        {"float", ElementType::f32},
    {"torch.float32", ElementType::f32}, {"fp16", ElementType::f16},           {"float16", ElementType::f16},
    {"half", ElementType::f16},          {"torch.float16", ElementType::f16},  {"bf16", ElementType::bf16},
    {"bfloat16", ElementType::bf16},     {"torch.bfloat16", ElementType::bf16}};

Shape type_word() {
  std::vector<std::string> words;
  for (const TypeWord& one : kTypes) words.emplace_back(one.word);
  return choice(words).or_null();
}

Json yes(const Definition&) { return true; }
Json without_masters(const Definition& definition) { return !definition.precision.master_weights; }
Json gradients_of(const Definition& definition) { return std::string(name(definition.precision.gradients)); }

}  // namespace

const Keys<Definition>& fp16_keys() {
  static const Keys<Definition> keys = {
      {"enabled", written_as<Definition>(yes), flag().standard(false), kBits, ""},
      {"auto_cast", by_hand, flag(), kNoBit, ""},
      {"loss_scale", of_scaler(&LossScalerPlan::loss_scale), number().least(0).unset(), kBits, ""},
      {"initial_scale_power", of_scaler(&LossScalerPlan::initial_scale_power), integer().unset(), kBits, ""},
      {"loss_scale_window", of_scaler(&LossScalerPlan::loss_scale_window), integer().unset(), kBits, ""},
      {"hysteresis", of_scaler(&LossScalerPlan::hysteresis), integer().unset(), kBits, ""},
      {"consecutive_hysteresis", of_scaler(&LossScalerPlan::consecutive_hysteresis), flag().unset(), kBits, ""},
      {"min_loss_scale", of_scaler(&LossScalerPlan::min_loss_scale), integer().unset(), kBits, ""},
      {"fp16_master_weights_and_grads", by_hand, flag(), kNoBit, ""},
  };
  return keys;
}

const Keys<Definition>& bf16_keys() {
  static const Keys<Definition> keys = {
      {"enabled", written_as<Definition>(yes), flag().standard(false), kBits, ""},
      {"immediate_grad_update", by_hand, flag(), kNoBit, ""},
      {"check_grad_overflow", by_hand, flag(), kNoBit, ""},
      {"bf16_master_weights_and_grads", written_as<Definition>(without_masters), flag().unset(), kBits, ""},
      {"bf16_optimizer_states", by_hand, flag(), kNoBit, ""},
  };
  return keys;
}

const Keys<Definition>& data_types_keys() {
  static const Keys<Definition> keys = {
      {"grad_accum_dtype", written_as<Definition>(gradients_of), type_word().unset(), kBits,
       "Unset: as the model. Sums are fp32 always; a 16-bit type rounds them once, at the root."},
      {"param_dtype", by_hand, type_word(), kNoBit, "Only fp32, or unset."},
      {"buffer_dtype", by_hand, type_word(), kNoBit, "No effect here: there are no buffers."},
      {"keep_in_fp32_modules", by_hand, either(text(), list(text())), kNoBit, "Only \"auto\", or an empty list."},
  };
  return keys;
}

const Keys<LossScalerPlan>& grad_scaler_keys() {
  static const Keys<LossScalerPlan> keys = {
      {"init_scale", at(&LossScalerPlan::init_scale), number().above(0), kBits, "The first scale."},
      {"growth_factor", at(&LossScalerPlan::growth_factor), number(), kBits,
       "Times this after growth_interval good steps in a row."},
      {"backoff_factor", at(&LossScalerPlan::backoff_factor), number(), kBits, "Times this after an overflow."},
      {"growth_interval", at(&LossScalerPlan::growth_interval), integer(1), kBits,
       "Good steps in a row before the scale grows."},
      {"enabled", at(&LossScalerPlan::enabled), flag(), kBits, "false: the scale is 1."},
  };
  return keys;
}

namespace {

// DeepSpeed keeps masters in 16 bits within ZeRO only. seeksim does so at any stage, unless it is to be strict.
void check_masters(const Reader& deepspeed, const Scenario& scenario) {
  const bool zero = scenario.train.layout.zero.stage > 0;
  const auto refuse = [&](const char* section, const char* key, const char* why) {
    if (deepspeed.child(section).flag(key, false)) deepspeed.child(section).problem(key, why, "Use stage 1, 2 or 3.");
  };
  if (!zero && scenario.strict_deepspeed) {
    refuse("fp16", "fp16_master_weights_and_grads",
           "Fp16_master_weights_and_grads is only supported with ZeRO Stage 1, 2, or 3.");
    refuse("bf16", "bf16_master_weights_and_grads",
           "Bf16_master_weights_and_grads is only supported with ZeRO Stage 1, 2, or 3.");
    refuse("bf16", "bf16_optimizer_states", "bf16_optimizer_states is only supported with ZeRO Stage 1, 2, or 3.");
  }
  const Reader bf16 = deepspeed.child("bf16");
  if (bf16.flag("bf16_optimizer_states", false) && !bf16.flag("bf16_master_weights_and_grads", false))
    bf16.problem("bf16_optimizer_states", "requires bf16_master_weights_and_grads to be enabled", "Set both, or none.");
}

void read_fp16(const Reader& fp16, Scenario& scenario) {
  PrecisionPlan& precision = scenario.train.definition.precision;
  LossScalerPlan& scaler = scenario.train.definition.scaler;
  precision.compute = precision.gradients = ElementType::f16;
  fp16_keys().read(fp16, scenario.train.definition);
  scaler.hysteresis = std::max<decltype(scaler.hysteresis)>(scaler.hysteresis, 1);  // less is no patience either
  scaler.kind = scaler.loss_scale == 0 ? LossScalerKind::dynamic : LossScalerKind::static_scale;
  if (fp16.flag("fp16_master_weights_and_grads", false)) {
    fp16.problem(
        "fp16_master_weights_and_grads", fmt::format("{}: true", kNotBuilt),
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
    bf16.problem("bf16_optimizer_states", fmt::format("{}: true", kNotBuilt), "Moments are fp32. Set it to false.");
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
  const auto* const row =
      std::find_if(std::begin(kTypes), std::end(kTypes), [&](const TypeWord& one) { return word == one.word; });
  if (row == std::end(kTypes)) return;  // the schema said so
  const ElementType asked = row->type;
  if (asked == ElementType::f32 || asked == precision.compute) {
    precision.gradients = asked;
  } else {
    types.problem("grad_accum_dtype",
                  fmt::format("{}: {} for a model in {}", kNotBuilt, word, std::string(name(precision.compute))),
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
  scaler.kind = LossScalerKind::torch;
  grad_scaler_keys().read(keys.child("grad_scaler"), scaler);
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
  check_masters(deepspeed, scenario);
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

}  // namespace seeksim::harness
