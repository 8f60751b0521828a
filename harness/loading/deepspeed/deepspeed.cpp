#include "harness/loading/deepspeed/deepspeed.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>

#include "harness/loading/deepspeed/activation_checkpointing.h"
#include "harness/loading/deepspeed/batch.h"
#include "harness/loading/deepspeed/offload.h"
#include "harness/loading/deepspeed/optimizer.h"
#include "harness/loading/deepspeed/precision.h"
#include "harness/loading/deepspeed/zero.h"

namespace seeksim::harness {
namespace {

constexpr const char* kNotYet = "Not supported";

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
      {"/zero_optimization/zero_hpz_partition_size", is_above_one, "Use 1; this does not change results."},
      {"/zero_optimization/mics_shard_size", is_positive, "Use -1; this does not change results."},
      {"/zero_optimization/mics_hierarchical_params_gather", is_true, "Set it to false; this does not change results."},
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
    problems.push_back(document.problem(pointer,
                                        "\"auto\" is filled in by Hugging Face's Trainer, which does not run here",
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
  section["optimizer"] = optimizer_json(d.optimizer);
  if (!d.scheduler.type.empty() && d.scheduler.type != "table") section["scheduler"] = scheduler_json(d.scheduler);
  // Written, it would be no default.
  if (!d.quirks.has(runtime::Quirk::ds_old_default_clipping)) section["gradient_clipping"] = d.gradient_clipping;
  if (d.precision.compute == runtime::ElementType::f16) section["fp16"] = fp16_keys().written(d);
  if (d.precision.compute == runtime::ElementType::bf16) section["bf16"] = bf16_keys().written(d);
  if (is_16_bit(d.precision.compute)) section["data_types"] = data_types_keys().written(d);
  write_offload(scenario, section);
  const Json segments = activation_checkpointing_keys().written(scenario.train.layout.checkpointing);
  if (!segments.empty()) section["activation_checkpointing"] = segments;
  return section;
}

}  // namespace seeksim::harness
