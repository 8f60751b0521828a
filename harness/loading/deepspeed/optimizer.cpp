#include "harness/loading/deepspeed/optimizer.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "harness/loading/deepspeed/not_built.h"
#include "runtime/plan/optimizer_kinds.h"

namespace seeksim::harness {
namespace {

const std::vector<std::string> kSchedulers = {"WarmupLR", "WarmupDecayLR", "WarmupCosineLR"};

// An optimizer that DeepSpeed knows, had, or takes from torch.optim; another word is a slip.
std::string why_no(const std::string& type) {
  const std::string name = lower(type);
  if (name == "onebitadam") return "DeepSpeed 0.19.8 has removed it too; compression.optimizer onebit_adam is like it";
  for (const char* removed : {"onebitlamb", "zerooneadam"}) {
    if (name == removed) return "DeepSpeed 0.19.8 has removed it too";
  }
  return "";
}

// Numbers of the optimizer that torch or DeepSpeed reads and this trainer has no use for.
void say_idle_params(const Reader& params, Scenario& scenario) {
  std::vector<std::string> idle;
  for (const char* key : {"fused", "foreach", "capturable", "set_grad_none", "fp32_optimizer_states"}) {
    if (params.has(key)) idle.emplace_back(key);
  }
  if (!idle.empty())
    scenario.notes.push_back(fmt::format("keys of optimizer.params without effect here: {}", fmt::join(idle, ", ")));
}

// DeepSpeed hands params on to FusedLion, or to DeepSpeedCPULion, which take no other than these.
void refuse_foreign_to_lion(const Reader& params) {
  if (params.value() == nullptr) return;
  for (const auto& [key, value] : params.value()->items()) {
    bool known = false;
    for (const char* own : {"lr", "betas", "weight_decay", "set_grad_none", "fp32_optimizer_states", "max_grad_norm"})
      known = known || key == own;
    if (!known)
      params.problem(key.c_str(), "DeepSpeed's Lion has no such parameter", "It takes lr, betas and weight_decay.");
  }
}

void read_lion(const Reader& params, Scenario& scenario) {
  refuse_foreign_to_lion(params);
  scenario.train.definition.optimizer.type = "Lion";
  if (!params.has("betas"))
    scenario.notes.push_back(
        "optimizer Lion: betas are 0.9 and 0.999, as DeepSpeed has it; the paper's are 0.9 and 0.99");
}

// DeepSpeed hands params on to torch.optim.SGD.
void refuse_foreign_to_sgd(const Reader& params) {
  if (params.value() == nullptr) return;
  for (const auto& [key, value] : params.value()->items()) {
    bool known = false;
    for (const char* own :
         {"lr", "momentum", "dampening", "weight_decay", "nesterov", "maximize", "foreach", "fused", "max_grad_norm"})
      known = known || key == own;
    if (!known)
      params.problem(key.c_str(), "torch's SGD has no such parameter",
                     "It takes lr, momentum, dampening, weight_decay and nesterov.");
  }
  if (params.flag("maximize", false))
    params.problem("maximize", fmt::format("{}: true", kNotBuilt), "A loss is made less: remove it.");
}

void read_sgd(const Reader& params, Scenario& scenario) {
  refuse_foreign_to_sgd(params);
  runtime::OptimizerPlan& plan = scenario.train.definition.optimizer;
  plan.type = "SGD";
  plan.momentum = params.number("momentum", 0);
  plan.dampening = params.number("dampening", 0);
  plan.nesterov = params.flag("nesterov", false);
  if (plan.nesterov && (plan.momentum == 0 || plan.dampening != 0))
    params.problem("nesterov", "Nesterov momentum requires a momentum and zero dampening",
                   "Set momentum above 0 and dampening to 0, or nesterov to false.");
  if (plan.momentum == 0 && plan.dampening != 0)
    scenario.notes.push_back("optimizer SGD: without momentum dampening has no effect, as in torch");
}

void refuse_sgd_keys(const Reader& params) {
  for (const char* key : {"dampening", "nesterov", "maximize"}) {
    if (params.has(key)) params.problem(key, "only SGD has it", "Remove it, or use type SGD.");
  }
}

constexpr const char* kOfMuon[] = {"momentum", "muon_lr", "adam_lr", "ns_method", "per_head_muon"};

void refuse_foreign_to_muon(const Reader& params) {
  if (params.value() == nullptr) return;
  for (const auto& [key, value] : params.value()->items()) {
    bool known = std::ranges::find(kOfMuon, key) != std::end(kOfMuon);
    for (const char* own : {"lr", "betas", "eps", "weight_decay", "torch_adam", "adam_w_mode", "set_grad_none",
                            "fp32_optimizer_states", "max_grad_norm"})
      known = known || key == own;
    if (!known)
      params.problem(key.c_str(), "Muon has no such parameter here",
                     "It takes lr, muon_lr, adam_lr, momentum, betas, eps and weight_decay.");
  }
  if (!params.flag("adam_w_mode", true))
    params.problem("adam_w_mode", fmt::format("{}: false with Muon", kNotBuilt), "Decay is decoupled: remove it.");
  if (params.flag("per_head_muon", false))
    params.problem("per_head_muon", fmt::format("{}: true", kNotBuilt), "A matrix is taken as a whole: remove it.");
  if (params.text("ns_method", "standard") != "standard")
    params.problem("ns_method", fmt::format("{}: {}", kNotBuilt, in_quotes(params.text("ns_method"))),
                   "Use \"standard\", which gives the same polynomial.");
}

// Two rates: DeepSpeed's WarmupLR and WarmupDecayLR write one into both groups, and its WarmupCosineLR scales each.
void read_muon_rates(const Reader& section, const Reader& params, Scenario& scenario) {
  constexpr double kMuonRate = 0.02, kAdamRate = 3e-4;  // DeepSpeed 0.19.8's defaults
  runtime::OptimizerPlan& plan = scenario.train.definition.optimizer;
  const bool shared = params.has("lr");
  plan.lr = params.number("muon_lr", shared ? params.number("lr", kMuonRate) : kMuonRate);
  const double adam = params.number("adam_lr", shared ? params.number("lr", kAdamRate) : kAdamRate);
  const std::string schedule = section.has("scheduler") ? section.child("scheduler").text("type") : "";
  const bool overwrites = !schedule.empty() && schedule != "WarmupCosineLR";
  for (const char* key : {"muon_lr", "adam_lr"}) {
    if (overwrites && params.has(key))
      params.problem(key, fmt::format("DeepSpeed's {} writes one rate over both", schedule),
                     "Use lr alone, WarmupCosineLR, or no scheduler.");
  }
  if (plan.lr <= 0 && adam > 0)
    params.problem(params.has("muon_lr") ? "muon_lr" : "lr", "a rate of 0 for matrices, and another for the rest",
                   "Give muon_lr more than 0, or freeze the matrices.");
  plan.adamw_rate = overwrites || plan.lr <= 0 ? 1 : adam / plan.lr;
}

// A matrix of a layer by Muon, and the rest by AdamW, with DeepSpeed's defaults.
void read_muon(const Reader& section, const Reader& params, Scenario& scenario) {
  runtime::OptimizerPlan& plan = scenario.train.definition.optimizer;
  plan.type = "Muon";
  refuse_foreign_to_muon(params);
  read_muon_rates(section, params, scenario);
  plan.momentum = params.number("momentum", 0.95);
  plan.eps = params.number("eps", 1e-10);
  plan.weight_decay = params.number("weight_decay", 0);
  if (!params.has("betas")) plan.betas = {0.9, 0.95};
  scenario.notes.push_back(
      "optimizer Muon: the iteration runs in fp32, and a shard ends between matrices (docs/muon.md)");
}

void refuse_muon_keys(const Reader& params, bool has_momentum) {
  for (const char* key : kOfMuon) {
    if (has_momentum && std::string_view(key) == "momentum") continue;
    if (params.has(key)) params.problem(key, "only Muon has it", "Remove it, or use type Muon.");
  }
}

// The number that gives this rate when it is read again.
double adam_lr(const runtime::OptimizerPlan& plan) {
  const double product = plan.lr * plan.adamw_rate;
  for (const double near : {std::nextafter(product, 0.0), std::nextafter(product, 2 * product)})
    if (product / plan.lr != plan.adamw_rate && near / plan.lr == plan.adamw_rate) return near;
  return product;
}

// What only another schedule takes. seeksim reads past it, unless it is to be strict.
void refuse_foreign_params(const Reader& params, const std::string& type, const Scenario& scenario) {
  if (!scenario.strict_deepspeed || params.value() == nullptr) return;
  std::vector<std::string> known = {"warmup_num_steps", "warmup_type", "last_batch_iteration"};
  const bool is_cosine = type == "WarmupCosineLR";
  for (const char* name : {"warmup_min_lr", "warmup_max_lr"}) {
    if (!is_cosine) known.emplace_back(name);
  }
  for (const char* name : {"warmup_min_ratio", "cos_min_ratio"}) {
    if (is_cosine) known.emplace_back(name);
  }
  if (type != "WarmupLR") known.emplace_back("total_num_steps");
  for (const auto& [key, value] : params.value()->items()) {
    if (std::find(known.begin(), known.end(), key) == known.end())
      params.problem(key.c_str(), fmt::format("{} has no such parameter", type), "Remove it.");
  }
}

// DeepSpeed's WarmupDecayLR rises to 0.001 by default, and its siblings to the optimizer's rate.
void default_peak(const Reader& params, Scenario& scenario) {
  constexpr double kPeak = 1e-3;
  runtime::SchedulerPlan& plan = scenario.train.definition.scheduler;
  if (!params.has("warmup_max_lr") && plan.warmup_max_lr != kPeak) {
    scenario.notes.push_back(fmt::format("WarmupDecayLR rises to {}, its own default for warmup_max_lr, not to lr {}",
                                         kPeak, plan.warmup_max_lr));
  }
  plan.warmup_max_lr = kPeak;
}

}  // namespace

std::string lower(std::string_view given) {
  std::string text(given);
  std::transform(text.begin(), text.end(), text.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? char(c + 32) : c; });
  return text;
}

bool is_built_optimizer(const std::string& type) {
  return std::ranges::any_of(runtime::kOptimizerKinds, [&](const auto& row) { return lower(type) == lower(row.type); });
}

bool is_built_scheduler(const std::string& type) {
  return std::find(kSchedulers.begin(), kSchedulers.end(), type) != kSchedulers.end();
}

void read_optimizer(const Reader& section, Scenario& scenario) {
  runtime::OptimizerPlan& plan = scenario.train.definition.optimizer;
  plan.type = "AdamW";
  plan.bias_correction = true;
  plan.weight_decay = 0;  // DeepSpeed's FusedAdam; torch's AdamW has 0.01
  if (!section.has("optimizer")) {
    scenario.notes.push_back("no optimizer given: AdamW with lr 0.001 and no weight decay");
    return;
  }
  const Reader optimizer = section.child("optimizer"), params = optimizer.child("params");
  const std::string type = optimizer.text("type", "AdamW");
  const bool is_adam = lower(type) == "adam";
  if (!is_built_optimizer(type)) {
    const std::string near = closest(type, {"AdamW", "Adam", "Lion", "Muon", "SGD"}), why = why_no(type);
    optimizer.problem("type",
                      fmt::format("{}: optimizer {}{}{}", kNotBuilt, in_quotes(type), why.empty() ? "" : ": ", why),
                      near.empty() ? "Use AdamW, Adam, Lion, Muon or SGD." : fmt::format("Did you mean \"{}\"?", near));
    return;
  }
  if (params.has("max_grad_norm")) {
    params.problem("max_grad_norm",
                   "'max_grad_norm' is not supported as an optimizer parameter, please switch to using the deepspeed "
                   "parameter 'gradient_clipping'",
                   "Move it one level up.");
  }
  if (params.flag("amsgrad", false)) {
    params.problem("amsgrad",
                   params.flag("torch_adam", false) ? fmt::format("{}: true", kNotBuilt)
                                                    : "FusedAdam does not support the AMSGrad variant.",
                   "Set it to false.");
  }
  say_idle_params(params, scenario);
  if (lower(type) == "lion") read_lion(params, scenario);
  const bool is_muon = lower(type) == "muon", is_sgd = lower(type) == "sgd";
  if (!is_muon) refuse_muon_keys(params, is_sgd);
  if (is_sgd)
    read_sgd(params, scenario);
  else
    refuse_sgd_keys(params);
  // DeepSpeed's "Adam" is AdamW unless "adam_w_mode" is false.
  if (is_adam && !params.flag("adam_w_mode", true)) plan.type = "Adam";
  if (is_adam && plan.type == "AdamW" && !params.has("adam_w_mode")) {
    scenario.notes.push_back("optimizer Adam means AdamW in DeepSpeed; \"adam_w_mode\": false gives L2");
  }
  plan.bias_correction = params.flag("bias_correction", true);
  if (params.has("bias_correction") && params.flag("torch_adam", false)) {
    params.problem("bias_correction", "torch's Adam has no such parameter, and DeepSpeed hands it on",
                   "Remove it, or torch_adam.");
  }
  plan.lr = params.number("lr", 1e-3);
  plan.eps = params.number("eps", 1e-8);
  const bool torch_adamw = params.flag("torch_adam", false) && plan.type == "AdamW";
  plan.weight_decay = params.number("weight_decay", torch_adamw ? 0.01 : 0.0);
  if (is_muon) read_muon(section, params, scenario);
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
  if (scheduler.has("type") && !is_built_scheduler(plan.type)) {
    const std::string near = closest(plan.type, kSchedulers);
    scheduler.problem("type", fmt::format("{}: scheduler {}", kNotBuilt, in_quotes(plan.type)),
                      near.empty() ? fmt::format("Use one of {}.", fmt::join(kSchedulers, ", "))
                                   : fmt::format("Did you mean \"{}\"?", near));
    return;
  }
  refuse_foreign_params(params, plan.type, scenario);
  if (plan.type == "WarmupDecayLR") default_peak(params, scenario);
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
  const std::int64_t steps = scenario.train.definition.steps;
  if (decays && plan.total_num_steps > 0 && plan.total_num_steps < steps) {
    scenario.notes.push_back(fmt::format("the learning rate reaches its end at step {}: {} of {} steps train with {}",
                                         plan.total_num_steps, steps - plan.total_num_steps, steps,
                                         plan.type == "WarmupDecayLR" ? "0" : "its least value"));
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
  if (plan.type == "Lion") params.erase("eps");
  if (plan.type == "SGD")
    return {{"type", plan.type},
            {"params",
             {{"lr", plan.lr},
              {"momentum", plan.momentum},
              {"dampening", plan.dampening},
              {"nesterov", plan.nesterov},
              {"weight_decay", plan.weight_decay}}}};
  if (plan.type == "Muon") {
    params["momentum"] = plan.momentum;
    if (plan.adamw_rate != 1) params["adam_lr"] = adam_lr(plan);
  }
  if (!plan.bias_correction) params["bias_correction"] = false;
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
