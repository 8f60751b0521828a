#include "harness/loading/quirks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "harness/record/same_bits.h"
#include "harness/verdict/checks.h"

namespace seeksim::harness {
namespace {

using runtime::ElementType;
using runtime::LossScalerKind;
using runtime::Quirk;
using runtime::QuirkPoint;
using runtime::Quirks;

// Why a quirk cannot do anything in this scenario, and what to do; empty: it can.
struct Refusal {
  std::string what;
  std::string next;
};

Refusal of_the_precision(Quirk quirk, const runtime::Definition& d) {
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

Refusal of_the_rest(Quirk quirk, const Scenario& scenario) {
  const runtime::Definition& d = scenario.train.definition;
  switch (info(quirk).point) {
    case QuirkPoint::unscale_clip:
      if (info(quirk).rival == "clip" && d.gradient_clipping <= 0) return {"there is no gradient_clipping", "Set it."};
      break;
    case QuirkPoint::schedule:
      if (d.scheduler.type.empty()) return {"the learning rate is constant", "Add deepspeed.scheduler."};
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

Refusal not_wired(Quirk quirk, const runtime::Definition& d) {
  if (info(quirk).point == QuirkPoint::reduction && d.precision.compute != ElementType::f32) {
    return {fmt::format("not in this version for {}: ranks are added up in fp32, so that what it does in 16 bits would "
                        "not show",
                        std::string(name(d.precision.compute))),
            "Use fp32."};
  }
  return {};
}

Refusal refusal(Quirk quirk, const Scenario& scenario) {
  Refusal refusal = not_wired(quirk, scenario.train.definition);
  if (refusal.what.empty()) refusal = of_the_precision(quirk, scenario.train.definition);
  if (refusal.what.empty()) refusal = of_the_rest(quirk, scenario);
  return refusal;
}

// ---- the difference ------------------------------------------------------------------------------------------------

// |a - b| / |b|, in words: a number that is not finite has no distance from another.
class Distance {
 public:
  void add(float a, float b, std::int64_t at) {
    if (same_bits(a, b)) return;
    ++differing_;
    if (!std::isfinite(a) || !std::isfinite(b)) {
      if (odd_.empty()) odd_ = fmt::format("{} instead of {} in step {}", a, b, at);
      return;
    }
    largest_ = std::max(largest_, std::fabs(double(a) - double(b)) / std::max(1e-30, std::fabs(double(b))));
  }
  std::string text(const char* what) const {
    if (differing_ == 0) return fmt::format("{} as without", what);
    std::string text = fmt::format("{} in {} step{}", what, differing_, differing_ == 1 ? "" : "s");
    if (largest_ > 0) text += fmt::format(", by {:.3g} at most", largest_);
    return odd_.empty() ? text : text + ", " + odd_;
  }

 private:
  std::int64_t differing_ = 0;
  double largest_ = 0;
  std::string odd_;
};

// What of a step is another; empty: nothing.
std::string of_step(const runtime::StepRecord& a, const runtime::StepRecord& b) {
  if (a.skipped != b.skipped) return a.skipped ? "it is skipped" : "it is applied";
  if (a.loss_scale != b.loss_scale) return fmt::format("loss scale {} instead of {}", a.loss_scale, b.loss_scale);
  if (!same_bits(a.loss, b.loss)) return fmt::format("loss {} instead of {}", a.loss, b.loss);
  if (!same_bits(a.grad_norm, b.grad_norm)) return fmt::format("norm {} instead of {}", a.grad_norm, b.grad_norm);
  if (a.lr != b.lr) return fmt::format("learning rate {} instead of {}", a.lr, b.lr);
  return "";
}

// Elements and tensors that differ, and the largest difference as a share of the tensor's largest value.
std::string of_weights(const std::vector<runtime::NamedTensor>& have, const std::vector<runtime::NamedTensor>& want) {
  if (have.empty() || have.size() != want.size()) return "";
  std::size_t elements = 0, all = 0, tensors = 0, odd = 0;
  double largest = 0;
  for (std::size_t t = 0; t < have.size(); ++t) {
    const std::vector<float>&a = have[t].values, &b = want[t].values;
    std::size_t differing = 0;
    double range = 0, distance = 0;
    for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
      if (std::isfinite(b[i])) range = std::max(range, std::fabs(double(b[i])));
      if (same_bits(a[i], b[i])) continue;
      ++differing;
      if (std::isfinite(a[i]) && std::isfinite(b[i]))
        distance = std::max(distance, std::fabs(double(a[i]) - double(b[i])));
      else
        ++odd;
    }
    all += a.size();
    elements += differing;
    tensors += differing > 0;
    if (range > 0) largest = std::max(largest, distance / range);
  }
  if (elements == 0) return "";
  return fmt::format("{} of {} weights in {} of {} tensors{}{}", elements, all, tensors, have.size(),
                     largest > 0 ? fmt::format(", by {:.3g} of the tensor's largest at most", largest) : "",
                     odd > 0 ? fmt::format(", {} of them not finite", odd) : "");
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
    const Refusal wrong = refusal(row.quirk, scenario);
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

Finding quirk_differs(const Evidence& e, const std::string& step) {
  const Quirks& quirks = e.scenario.train.definition.quirks;
  if (!quirks.any()) return blind("the scenario has no quirks");
  if (e.without_quirks == nullptr) return blind("there is no run without them to compare with");
  const std::vector<runtime::StepRecord>&have = e.run.steps, &want = e.without_quirks->steps;
  if (have.empty() || want.empty()) return blind("no step was committed");
  Distance loss, norm;
  std::string first;
  std::int64_t first_step = -1;
  for (std::size_t i = 0; i < std::min(have.size(), want.size()); ++i) {
    loss.add(have[i].loss, want[i].loss, have[i].step);
    norm.add(have[i].grad_norm, want[i].grad_norm, have[i].step);
    if (first_step >= 0) continue;
    first = of_step(have[i], want[i]);
    if (!first.empty()) first_step = have[i].step;
  }
  const std::string weights = of_weights(e.run.final_weights, e.without_quirks->final_weights);
  const std::string names = fmt::format("{}", fmt::join(quirk_names(quirks), ", "));
  if (first_step < 0 && weights.empty() && have.size() == want.size())
    return bad(
        fmt::format("{} had no effect: {} losses, norms and rates, and all weights, are those of the run without",
                    names, have.size()));
  const std::string detail =
      fmt::format("{}; {}; {}; {}",
                  first_step < 0 ? "no step's numbers differ" : fmt::format("first in step {}: {}", first_step, first),
                  loss.text("loss"), norm.text("norm"), weights.empty() ? "weights as without" : weights);
  if (!step.empty() && step != std::to_string(first_step))
    return bad(fmt::format("it was to differ in step {} first: {}", step, detail));
  return good(detail);
}

}  // namespace seeksim::harness
