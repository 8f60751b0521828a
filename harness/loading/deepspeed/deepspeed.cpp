#include "harness/loading/deepspeed/deepspeed.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <map>
#include <optional>

#include "harness/loading/deepspeed/offload.h"
#include "harness/loading/deepspeed/precision.h"

namespace seeksim::harness {
namespace {

constexpr const char* kNotYet = "Not in this version";

// ---- what this version cannot do -----------------------------------------------------------------------------------

struct Refusal {
  const char* pointer;  // below the section
  std::function<bool(const Json&)> asks;
  const char* next;
};

bool is_true(const Json& value) { return value == true; }
bool is_not_fp32(const Json& value) { return value.is_string() && value != "fp32"; }
bool is_above_one(const Json& value) { return value.is_number() && value > 1; }
bool is_positive(const Json& value) { return value.is_number() && value > 0; }
bool is_there(const Json& value) { return value.is_object() && !value.empty(); }

const std::vector<Refusal>& refusals() {
  static const std::vector<Refusal> table = {
      {"/zero_optimization/cpu_offload", is_true,
       "Write \"offload_optimizer\": {\"device\": \"cpu\"}, by which DeepSpeed has replaced it."},
      {"/zero_optimization/cpu_offload_params", is_true,
       "Write \"offload_param\": {\"device\": \"cpu\"}, by which DeepSpeed has replaced it."},
      {"/zero_optimization/zero_hpz_partition_size", is_above_one, "Use 1; it decides no bit."},
      {"/zero_optimization/mics_shard_size", is_positive, "Use -1; it decides no bit."},
      {"/zero_optimization/mics_hierarchical_params_gather", is_true, "Set it to false; it decides no bit."},
      {"/zero_optimization/zero_quantized_weights", is_true, "Remove it."},
      {"/zero_optimization/zero_quantized_nontrainable_weights", is_true, "Remove it."},
      {"/zero_optimization/zero_quantized_gradients", is_true, "Remove it."},
      {"/zero_optimization/legacy_stage1", is_true, "DeepSpeed refuses it too."},
      {"/amp/enabled", is_true, "Set it to false: training is in fp32."},
      {"/elasticity/enabled", is_true, "Set it to false; \"recovery\" says what happens when ranks are lost."},
      {"/data_efficiency/enabled", is_true, "Set it to false."},
      {"/curriculum_learning/enabled", is_true, "Set it to false."},
      {"/progressive_layer_drop/enabled", is_true, "Set it to false."},
      {"/eigenvalue/enabled", is_true, "Set it to false."},
      {"/hybrid_engine/enabled", is_true, "Set it to false."},
      {"/sparse_gradients", is_true, "Set it to false."},
      {"/sparse_attention", is_there, "Remove it."},
      {"/compression_training", is_there, "Remove it."},
      {"/quantize_training", is_there, "Remove it."},
      {"/gradient_allreduce_op", [](const Json& v) { return v == "sum"; }, "Use \"mean\"."},
      {"/communication_data_type", is_not_fp32, "Use \"fp32\"."},
      {"/optimizer/params/amsgrad", is_true, "Set it to false."},
      {"/optimizer/params/bias_correction", [](const Json& v) { return v == false; }, "Set it to true."},
      {"/scheduler/params/last_batch_iteration", [](const Json& v) { return v.is_number() && v != -1; }, "Remove it."},
  };
  return table;
}

void refuse(const Reader& section) {
  if (section.value() == nullptr) return;
  for (const Refusal& refusal : refusals()) {
    const Json::json_pointer pointer(refusal.pointer);
    if (!section.value()->contains(pointer) || !refusal.asks(section.value()->at(pointer))) continue;
    section.findings().add(section.pointer() + refusal.pointer,
                           fmt::format("{}: {}", kNotYet, section.value()->at(pointer).dump()), refusal.next);
  }
}

// Keys that change what is done below; every other key of the section is accepted and named once.
const std::vector<std::string>& effective_keys() {
  static const std::vector<std::string> keys = {"train_batch_size",
                                                "train_micro_batch_size_per_gpu",
                                                "gradient_accumulation_steps",
                                                "optimizer",
                                                "scheduler",
                                                "gradient_clipping",
                                                "fp16",
                                                "bf16",
                                                "data_types",
                                                "activation_checkpointing"};
  return keys;
}

// ---- ZeRO ---------------------------------------------------------------------------------------------------------

// A key of zero_optimization that changes where or when work is done, and from which stage to which.
struct ZeroKey {
  const char* name;
  std::int64_t runtime::ZeroPlan::*value;
  int first_stage;
  int last_stage;
  std::int64_t least;
};

const std::vector<ZeroKey>& zero_keys() {
  using Plan = runtime::ZeroPlan;
  static const std::vector<ZeroKey> table = {
      {"reduce_bucket_size", &Plan::reduce_bucket_elements, 1, 3, 1},
      {"allgather_bucket_size", &Plan::allgather_bucket_elements, 1, 2, 1},
      {"sub_group_size", &Plan::sub_group_elements, 3, 3, 1},
      {"stage3_prefetch_bucket_size", &Plan::prefetch_elements, 3, 3, 0},
      {"stage3_param_persistence_threshold", &Plan::persistence_threshold_elements, 3, 3, 0},
      {"stage3_max_live_parameters", &Plan::max_live_parameters, 3, 3, 0},
      {"stage3_max_reuse_distance", &Plan::max_reuse_distance, 3, 3, 0},
  };
  return table;
}

bool acts_at_stage(const std::string& key, int stage) {
  if (key == "stage") return true;
  if (key == "overlap_comm") return stage >= 1;
  return std::any_of(zero_keys().begin(), zero_keys().end(), [&](const ZeroKey& known) {
    return key == known.name && stage >= known.first_stage && stage <= known.last_stage;
  });
}

void read_zero(const Reader& section, Scenario& scenario) {
  const Reader zero = section.child("zero_optimization");
  runtime::ZeroPlan plan = runtime::zero_plan(int(std::clamp<std::int64_t>(zero.integer("stage", 0), 0, 3)));
  plan.overlap_comm = zero.flag("overlap_comm", plan.overlap_comm);
  for (const ZeroKey& key : zero_keys()) {
    const double value = zero.number(key.name, double(plan.*key.value));
    if (value >= double(key.least) && value <= 1e15) {
      plan.*key.value = std::int64_t(value);
    } else {
      zero.problem(key.name, fmt::format("{} is out of range", value),
                   fmt::format("Give a number of elements from {} on.", key.least));
    }
  }
  scenario.train.layout.zero = plan;
}

Json zero_json(const runtime::ZeroPlan& plan) {
  Json section = {{"stage", plan.stage}};
  if (plan.stage == 0) return section;
  section["overlap_comm"] = plan.overlap_comm;
  for (const ZeroKey& key : zero_keys()) {
    if (plan.stage >= key.first_stage && plan.stage <= key.last_stage) section[key.name] = plan.*key.value;
  }
  return section;
}

// Keys of zero_optimization that change nothing here at any stage, and why.
const char* why_idle(const std::string& key) {
  static const std::map<std::string, const char*> reasons = {
      {"contiguous_gradients", "a bucket is always one piece"},
      {"reduce_scatter", "gradients always go to their owners only"},
      {"use_multi_rank_bucket_allreduce", "gradients always go to their owners only"},
      {"allgather_partitions", "parameters always come by all-gather"},
      {"round_robin_gradients", "shards are cut evenly"},
      {"load_from_fp32_weights", "no checkpoints in this version"},
      {"elastic_checkpoint", "no checkpoints in this version"},
      {"stage3_gather_16bit_weights_on_model_save", "no checkpoints in this version"},
      {"stage3_gather_fp16_weights_on_model_save",
       "deprecated, DeepSpeed calls it stage3_gather_16bit_weights_on_model_save; no checkpoints in this version"},
      {"cpu_offload", "deprecated, DeepSpeed calls it offload_optimizer"},
      {"cpu_offload_params", "deprecated, DeepSpeed calls it offload_param"},
      {"cpu_offload_use_pin_memory", "deprecated, DeepSpeed calls it offload_optimizer.pin_memory"},
      {"offload_optimizer", "its device is none"},
      {"offload_param", "its device is none"},
      {"stage3_model_persistence_threshold", "what persists is decided parameter by parameter"},
      {"stage3_module_granularity_threshold", "parameters are gathered layer by layer"},
      {"stage3_use_all_reduce_for_fetch_params", "parameters always come by all-gather"},
      {"stage3_allgather_sequential", "gathers of a queue follow one another"},
      {"ignore_unused_parameters", "every trained parameter is used"},
      {"memory_efficient_linear", "activations are kept by layer"},
      {"enable_sanity_checks", "a scenario names its checks"},
      {"zero_hpz_partition_size", "1 is no second partition"},
      {"mics_shard_size", "no MiCS"},
      {"mics_hierarchical_params_gather", "no MiCS"},
  };
  const auto found = reasons.find(key);
  return found == reasons.end() ? nullptr : found->second;
}

// "(at stage 2)" for a key of another stage, else the reason.
std::string idle_zero_key(const std::string& key, int stage) {
  const char* why = why_idle(key);
  return fmt::format("zero_optimization.{} ({})", key, why ? std::string(why) : fmt::format("not at stage {}", stage));
}

// What DeepSpeed refuses together with ZeRO, in its words (training-semantics, 1.7).
void refuse_with_zero(const Reader& section) {
  const Reader zero = section.child("zero_optimization");
  const std::int64_t stage = zero.integer("stage", 0);
  if (stage >= 2 && zero.flag("reduce_scatter", true)) {
    if (section.number("gradient_predivide_factor", 1.0) != 1.0) {
      section.problem("gradient_predivide_factor",
                      fmt::format("gradient_predivide_factor != 1.0 is not yet supported with ZeRO-{} with reduce "
                                  "scatter enabled",
                                  stage),
                      "Remove it: it changes nothing here.");
    }
    if (section.flag("prescale_gradients", false)) {
      section.problem(
          "prescale_gradients",
          fmt::format("pre-scale gradients is not yet supported with ZeRO-{} with reduce scatter enabled", stage),
          "Set it to false: it changes nothing here.");
    }
  }
  if (section.child("fp16").flag("enabled", false) && section.child("bf16").flag("enabled", false)) {
    section.problem("bf16", "bfloat16 and fp16 modes cannot be simultaneously enabled", "Keep one of the two.");
  }
}

void name_keys_without_effect(const Reader& section, Scenario& scenario) {
  if (section.value() == nullptr) return;
  std::vector<std::string> idle;
  for (const auto& [key, value] : section.value()->items()) {
    const auto& effective = effective_keys();
    if (std::find(effective.begin(), effective.end(), key) != effective.end()) continue;
    if (offload_key_acts(key, scenario)) continue;
    if (key == "zero_optimization") {
      for (const auto& [name, ignored] : value.items()) {
        if (!acts_at_stage(name, scenario.train.layout.zero.stage) && !offload_key_acts(name, scenario))
          idle.push_back(idle_zero_key(name, scenario.train.layout.zero.stage));
      }
      continue;
    }
    if (value.is_object() && value.size() == 1 && value.value("enabled", true) == false) continue;
    idle.push_back(key);
  }
  if (!idle.empty())
    scenario.notes.push_back(fmt::format("deepspeed keys without effect here: {}", fmt::join(idle, ", ")));
}

// ---- batch arithmetic (DeepSpeed: runtime/config.py, _set_batch_related_parameters and _batch_assertion) ---------

std::optional<std::int64_t> given(const Reader& section, const char* key) {
  const Json* value = section.find(key);
  if (value == nullptr || !value->is_number_integer()) return std::nullopt;
  return value->get<std::int64_t>();
}

bool positive(const Reader& section, const char* key, const char* subject, std::optional<std::int64_t> value) {
  if (!value) return true;
  if (*value > 0 && *value <= 100'000'000) return true;
  section.problem(section.has(key) ? key : "",
                  *value > 0 ? fmt::format("{}: {} is more than any machine holds", subject, *value)
                             : fmt::format("{}: {} has to be greater than 0", subject, *value),
                  section.has(key) ? "" : "It follows from the other two sizes and the number of ranks.");
  return false;
}

void read_batch(const Reader& section, std::int64_t ranks, Scenario& scenario) {
  constexpr const char* kTrain = "train_batch_size";
  constexpr const char* kMicro = "train_micro_batch_size_per_gpu";
  constexpr const char* kGas = "gradient_accumulation_steps";
  std::optional<std::int64_t> train = given(section, kTrain), micro = given(section, kMicro),
                              gas = given(section, kGas);
  if (!train && !micro) {
    if (section.has(kTrain) || section.has(kMicro)) return;  // of a wrong type: the schema said so
    section.problem("", "Either train_batch_size or train_micro_batch_size_per_gpu needs to be provided",
                    "For example \"train_batch_size\": 32.");
    return;
  }
  // Zero or less: DeepSpeed's message, before anything is divided by it.
  const auto fine = [&](const char* key, const char* subject, std::optional<std::int64_t> value) {
    return positive(section, key, subject, value);
  };
  const bool all_fine = fine(kTrain, "Train batch size", train) & fine(kMicro, "Micro batch size per gpu", micro) &
                        fine(kGas, "Gradient accumulation steps", gas);
  if (!all_fine || ranks <= 0) return;
  if (scenario.by_samples && train) {
    const auto per = [](std::int64_t all, std::int64_t parts) { return (all + parts - 1) / parts; };
    const std::int64_t share = per(*train, ranks);  // of the rank that has most
    scenario.train.definition.global_batch = int(*train);
    scenario.train.layout.micro_batch = int(micro ? *micro : per(share, gas.value_or(1)));
    scenario.accumulation = int(per(share, scenario.train.layout.micro_batch));
    return;
  }
  if (train && micro) {
    if (!gas) gas = *train / *micro / ranks;
  } else if (train) {
    if (!gas) gas = 1;
    micro = *train / ranks / *gas;
  } else {
    if (!gas) gas = 1;
    train = *micro * *gas * ranks;
  }
  if (!(fine(kTrain, "Train batch size", train) & fine(kMicro, "Micro batch size per gpu", micro) &
        fine(kGas, "Gradient accumulation steps", gas))) {
    return;
  }
  if (*train != *micro * *gas * ranks) {
    section.problem(
        section.has(kTrain) ? kTrain : "",
        fmt::format("Check batch related parameters. train_batch_size is not equal to micro_batch_per_gpu * "
                    "gradient_acc_step * world_size {} != {} * {} * {}",
                    *train, *micro, *gas, ranks),
        fmt::format("With {} ranks and these micro-batches, {} would fit; or give two of the three.", ranks,
                    *micro * *gas * ranks));
    return;
  }
  scenario.train.definition.global_batch = int(*train);
  scenario.train.layout.micro_batch = int(*micro);
  scenario.accumulation = int(*gas);
}

// ---- optimizer and schedule ----------------------------------------------------------------------------------------

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? char(c + 32) : c; });
  return text;
}

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
  // DeepSpeed's "Adam" is AdamW unless told otherwise.
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

void find_auto(const Json& value, const std::string& pointer, std::vector<std::string>& found) {
  if (value.is_string() && value == "auto") found.push_back(pointer);
  if (!value.is_object()) return;
  for (const auto& [key, member] : value.items()) find_auto(member, pointer + '/' + pointer_step(key), found);
}

}  // namespace

void refuse_auto(Document& document, std::vector<Problem>& problems) {
  const auto section = document.json().find("deepspeed");
  if (section == document.json().end()) return;
  std::vector<std::string> found;
  find_auto(*section, "/deepspeed", found);
  for (const std::string& pointer : found) {
    problems.push_back(document.problem(pointer, "\"auto\" is filled by Hugging Face's Trainer, which is not here",
                                        "Write the value, or remove the key for DeepSpeed's default."));
    const std::size_t slash = pointer.rfind('/');
    document.json()
        .at(Json::json_pointer(pointer.substr(0, slash)))
        .erase(Json::json_pointer(pointer.substr(slash)).back());
  }
}

void read_deepspeed(const Reader& section, int ranks, Scenario& scenario) {
  refuse(section);
  refuse_with_zero(section);
  read_zero(section, scenario);
  read_offload(section, scenario);
  read_batch(section, ranks, scenario);
  read_optimizer(section, scenario);
  read_scheduler(section, scenario);
  runtime::Definition& definition = scenario.train.definition;
  definition.gradient_clipping = section.number("gradient_clipping", runtime::default_clipping(definition.quirks));
  if (!section.has("gradient_clipping") && definition.gradient_clipping > 0) {
    scenario.notes.push_back("gradient_clipping 1 is DeepSpeed 0.19.6's default (0 turns it off)");
  }
  name_keys_without_effect(section, scenario);
}

Json deepspeed_json(const Scenario& scenario) {
  const runtime::Definition& d = scenario.train.definition;
  Json section = {{"train_batch_size", d.global_batch},
                  {"train_micro_batch_size_per_gpu", scenario.train.layout.micro_batch},
                  {"gradient_accumulation_steps", scenario.accumulation},
                  {"zero_optimization", zero_json(scenario.train.layout.zero)}};
  Json params = {{"lr", d.optimizer.lr},
                 {"betas", {d.optimizer.betas[0], d.optimizer.betas[1]}},
                 {"eps", d.optimizer.eps},
                 {"weight_decay", d.optimizer.weight_decay}};
  if (d.optimizer.type == "Adam") params["adam_w_mode"] = false;
  section["optimizer"] = {{"type", d.optimizer.type}, {"params", std::move(params)}};
  const runtime::SchedulerPlan& s = d.scheduler;
  if (!s.type.empty() && s.type != "table") {
    Json schedule = {{"warmup_num_steps", s.warmup_num_steps}, {"warmup_type", s.warmup_type}};
    if (s.type == "WarmupCosineLR") {
      schedule["warmup_min_ratio"] = s.warmup_min_ratio;
      schedule["cos_min_ratio"] = s.cos_min_ratio;
    }
    schedule["warmup_min_lr"] = s.warmup_min_lr;
    schedule["warmup_max_lr"] = s.warmup_max_lr;
    if (s.total_num_steps > 0) schedule["total_num_steps"] = s.total_num_steps;
    section["scheduler"] = {{"type", s.type}, {"params", std::move(schedule)}};
  }
  // Written, it would be no default.
  if (!d.quirks.has(runtime::Quirk::ds_old_default_clipping)) section["gradient_clipping"] = d.gradient_clipping;
  write_precision(scenario, section);
  write_offload(scenario, section);
  return section;
}

}  // namespace seeksim::harness
