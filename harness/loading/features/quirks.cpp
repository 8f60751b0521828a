#include "harness/loading/features/quirks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace seeksim::harness {
namespace {

using runtime::ElementType;
using runtime::LossScalerKind;
using runtime::Quirk;
using runtime::QuirkPoint;
using runtime::Quirks;

// Why a quirk cannot do anything in this scenario, and what to do; empty: it can.
struct QuirkRefusal {
  std::string what;
  std::string next;
};

QuirkRefusal of_the_precision(Quirk quirk, const runtime::Definition& d) {
  const LossScalerKind scaler = d.scaler.kind;
  const std::string type(name(d.precision.compute));
  switch (quirk) {
    case Quirk::ds_stage0_scaler:
      if (scaler != LossScalerKind::dynamic) return {"there is no dynamic loss scale of DeepSpeed's", "Use fp16."};
      break;
    case Quirk::ds_unscales_by_new_scale:
    case Quirk::ds_stage3_norm_by_new_scale:
      if (scaler != LossScalerKind::dynamic && scaler != LossScalerKind::torch)
        return {"there is no loss scale that moves", "Use fp16 with a dynamic loss scale."};
      break;
    case Quirk::ds_stage0_unscaled_loss:
    case Quirk::torch_clips_before_unscale:
      if (scaler == LossScalerKind::none) return {"there is no loss scale", "Use fp16."};
      break;
    case Quirk::ds_bf16_unchecked:
      if (d.precision.compute != ElementType::bf16) return {"the model is in " + type, "Use bf16."};
      break;
    case Quirk::ds_accumulates_in_parameter_type:
      if (d.precision.compute == ElementType::f32)
        return {"parameters are fp32, and so is what they are added up in", "Use bf16 or fp16."};
      break;
    case Quirk::ds_fp32_unchecked:
      if (d.precision.compute != ElementType::f32) return {"the model is in " + type, "Use fp32."};
      break;
    default:
      break;
  }
  return {};
}

QuirkRefusal of_the_routing(const Scenario& scenario) {
  const runtime::ExpertsPlan& experts = scenario.train.definition.model.experts;
  if (!experts.on()) return {"there are no experts", "Set \"experts\" in model."};
  if (experts.samples > 1) return {"model.routing_samples says over how many samples", "Remove one of the two."};
  if (experts.capacity_factor == 0 && experts.balance == 0)
    return {"nothing is counted", "Set capacity_factor or aux_loss in model."};
  if (scenario.train.layout.micro_batch == 1) return {"a micro-batch is a sample", "Use larger micro-batches."};
  return {};
}

QuirkRefusal of_the_rest(Quirk quirk, const Scenario& scenario) {
  const runtime::Definition& d = scenario.train.definition;
  if (quirk == Quirk::experts_by_micro_batch) return of_the_routing(scenario);
  switch (info(quirk).point) {
    case QuirkPoint::unscale_clip:
      if (info(quirk).rival == "clip" && d.gradient_clipping <= 0) return {"there is no gradient_clipping", "Set it."};
      break;
    case QuirkPoint::schedule:
      if (d.scheduler.type.empty()) return {"the learning rate is constant", "Add deepspeed.scheduler."};
      break;
    case QuirkPoint::initial_state:
      if (d.optimizer.type == "Lion")
        return {"it is about Adam's bias correction, and Lion has none", "Use AdamW, or remove the quirk."};
      if (d.optimizer.type == "SGD")
        return {"it is about Adam's bias correction, and SGD has none", "Use AdamW, or remove the quirk."};
      if (d.optimizer.type == "Muon")
        return {"it is a step of Adam's on every tensor, and Muon has others", "Use AdamW, or remove the quirk."};
      break;
    case QuirkPoint::norm:
    case QuirkPoint::vote:
      if (scenario.train.layout.zero.stage == 0)
        return {"every rank holds all gradients", "Use deepspeed.zero_optimization.stage 1, 2 or 3."};
      break;
    default:
      break;
  }
  return {};
}

QuirkRefusal not_wired(Quirk quirk, const runtime::Definition& d) {
  if (info(quirk).point == QuirkPoint::reduction && d.precision.compute != ElementType::f32) {
    return {
        fmt::format("not supported for {}: ranks are added up in fp32, so that what it does in 16 bits would not show",
                    std::string(name(d.precision.compute))),
        "Use fp32."};
  }
  return {};
}

QuirkRefusal refusal(Quirk quirk, const Scenario& scenario) {
  QuirkRefusal refusal = not_wired(quirk, scenario.train.definition);
  if (refusal.what.empty()) refusal = of_the_precision(quirk, scenario.train.definition);
  if (refusal.what.empty()) refusal = of_the_rest(quirk, scenario);
  return refusal;
}

}  // namespace

void read_quirks(const Reader& top, Scenario& scenario) {
  const Json* list = top.find("quirks");
  if (list == nullptr || !list->is_array()) return;
  std::vector<std::string> known;
  for (const runtime::QuirkInfo& row : runtime::quirk_catalogue()) known.emplace_back(row.name);
  for (std::size_t i = 0; i < list->size(); ++i) {
    if (!(*list)[i].is_string()) continue;  // the schema said so
    const std::string name = (*list)[i].get<std::string>();
    if (const std::optional<Quirk> quirk = runtime::quirk_named(name)) {
      scenario.train.definition.quirks.add(*quirk);
      continue;
    }
    const std::string nearest = did_you_mean(name, known);
    top.findings().add(fmt::format("/quirks/{}", i), fmt::format("there is no quirk {}", in_quotes(name)),
                       fmt::format("{}{}seeksim list quirks names them all.", nearest, nearest.empty() ? "" : " "));
  }
}

void check_quirks(const Reader& top, const Scenario& scenario) {
  const Quirks& quirks = scenario.train.definition.quirks;
  if (const std::string conflict = quirks.conflict(); !conflict.empty()) top.problem("quirks", conflict, "");
  for (const runtime::QuirkInfo& row : runtime::quirk_catalogue()) {
    if (!quirks.has(row.quirk)) continue;
    const QuirkRefusal wrong = refusal(row.quirk, scenario);
    if (!wrong.what.empty()) top.problem("quirks", fmt::format("{}: {}", row.name, wrong.what), wrong.next);
  }
  if (quirks.has(Quirk::ds_old_default_clipping) && top.child("deepspeed").has("gradient_clipping")) {
    top.problem("quirks", "ds_old_default_clipping: deepspeed.gradient_clipping is written, so there is no default",
                "Remove one of the two.");
  }
  if (!quirks.split_dependent()) return;
  for (std::size_t i = 0; i < scenario.checks.size(); ++i) {
    if (scenario.checks[i].name != "golden") continue;
    top.findings().add("/checks",
                       fmt::format("{}: with {} the result depends on the split, so no golden has its bits",
                                   scenario.checks[i].text(), fmt::join(quirk_names(quirks), ", ")),
                       "Use quirk_differs, which says what the difference is.");
  }
}

}  // namespace seeksim::harness
