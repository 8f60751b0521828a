#include "harness/loading/deepspeed/optimizer.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace seeksim::harness {
namespace {

constexpr const char* kNotYet = "Not supported";

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? char(c + 32) : c; });
  return text;
}

}  // namespace

void read_optimizer(const Reader& section, Scenario& scenario) {
  runtime::OptimizerPlan& plan = scenario.train.definition.optimizer;
  plan.type = "AdamW";
  plan.weight_decay = 0;  // DeepSpeed's FusedAdam; torch's AdamW has 0.01
  if (!section.has("optimizer")) {
    scenario.notes.push_back("no optimizer given: AdamW with lr 0.001 and no weight decay");
    return;
  }
  const Reader optimizer = section.child("optimizer"), params = optimizer.child("params");
  const std::string type = optimizer.text("type", "AdamW");
  const bool is_adam = lower(type) == "adam";
  if (!is_adam && lower(type) != "adamw") {
    const std::vector<std::string> known = {"AdamW", "Adam"};
    const std::string near = closest(type, known);
    optimizer.problem("type", fmt::format("{}: optimizer {}", kNotYet, in_quotes(type)),
                      near.empty() ? "Use AdamW or Adam." : fmt::format("Did you mean \"{}\"?", near));
  }
  if (params.has("max_grad_norm")) {
    params.problem("max_grad_norm",
                   "'max_grad_norm' is not supported as an optimizer parameter, please switch to using the deepspeed "
                   "parameter 'gradient_clipping'",
                   "Move it one level up.");
  }
  // DeepSpeed's "Adam" is AdamW unless "adam_w_mode" is false.
  if (is_adam && !params.flag("adam_w_mode", true)) plan.type = "Adam";
  if (is_adam && plan.type == "AdamW" && !params.has("adam_w_mode")) {
    scenario.notes.push_back("optimizer Adam means AdamW in DeepSpeed; \"adam_w_mode\": false gives L2");
  }
  plan.lr = params.number("lr", 1e-3);
  plan.eps = params.number("eps", 1e-8);
  const bool torch_adamw = params.flag("torch_adam", false) && plan.type == "AdamW";
  plan.weight_decay = params.number("weight_decay", torch_adamw ? 0.01 : 0.0);
  const Json* betas = params.find("betas");
  if (betas && betas->is_array() && betas->size() == 2 && (*betas)[0].is_number() && (*betas)[1].is_number()) {
    plan.betas = {(*betas)[0].get<double>(), (*betas)[1].get<double>()};
  }
}

void read_scheduler(const Reader& section, Scenario& scenario) {
  runtime::SchedulerPlan& plan = scenario.train.definition.scheduler;
  plan = {};
  plan.warmup_max_lr = scenario.train.definition.optimizer.lr;
  if (!section.has("scheduler")) return;
  const Reader scheduler = section.child("scheduler"), params = scheduler.child("params");
  plan.type = scheduler.text("type");
  const std::vector<std::string> known = {"WarmupLR", "WarmupDecayLR", "WarmupCosineLR"};
  if (scheduler.has("type") && std::find(known.begin(), known.end(), plan.type) == known.end()) {
    const std::string near = closest(plan.type, known);
    scheduler.problem("type", fmt::format("{}: scheduler {}", kNotYet, in_quotes(plan.type)),
                      near.empty() ? fmt::format("Use one of {}.", fmt::join(known, ", "))
                                   : fmt::format("Did you mean \"{}\"?", near));
    return;
  }
  plan.warmup_min_lr = params.number("warmup_min_lr", 0);
  plan.warmup_max_lr = params.number("warmup_max_lr", plan.warmup_max_lr);
  plan.warmup_num_steps = std::max<std::int64_t>(2, params.integer("warmup_num_steps", 1000));
  plan.warmup_type = params.text("warmup_type", "log");
  plan.total_num_steps = params.integer("total_num_steps", 0);
  plan.warmup_min_ratio = params.number("warmup_min_ratio", 0);
  plan.cos_min_ratio = params.number("cos_min_ratio", 1e-4);
  const bool decays = plan.type == "WarmupDecayLR" || plan.type == "WarmupCosineLR";
  if (decays && !params.has("total_num_steps")) {
    scheduler.problem("", fmt::format("{} needs total_num_steps", plan.type),
                      "Add it under \"params\": usually the number of steps.");
  }
  if (decays && params.has("total_num_steps") && plan.total_num_steps < plan.warmup_num_steps) {
    scenario.notes.push_back(fmt::format("total_num_steps {} is less than warmup_num_steps {}", plan.total_num_steps,
                                         plan.warmup_num_steps));
  }
}

Json optimizer_json(const runtime::OptimizerPlan& plan) {
  Json params = {{"lr", plan.lr},
                 {"betas", {plan.betas[0], plan.betas[1]}},
                 {"eps", plan.eps},
                 {"weight_decay", plan.weight_decay}};
  if (plan.type == "Adam") params["adam_w_mode"] = false;
  return {{"type", plan.type}, {"params", std::move(params)}};
}

Json scheduler_json(const runtime::SchedulerPlan& plan) {
  Json params = {{"warmup_num_steps", plan.warmup_num_steps}, {"warmup_type", plan.warmup_type}};
  if (plan.type == "WarmupCosineLR") {
    params["warmup_min_ratio"] = plan.warmup_min_ratio;
    params["cos_min_ratio"] = plan.cos_min_ratio;
  }
  params["warmup_min_lr"] = plan.warmup_min_lr;
  params["warmup_max_lr"] = plan.warmup_max_lr;
  if (plan.total_num_steps > 0) params["total_num_steps"] = plan.total_num_steps;
  return {{"type", plan.type}, {"params", std::move(params)}};
}

}  // namespace seeksim::harness
