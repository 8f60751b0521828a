#include "harness/loading/deepspeed/deepspeed.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "harness/loading/deepspeed/activation_checkpointing.h"
#include "harness/loading/deepspeed/batch.h"
#include "harness/loading/deepspeed/monitors.h"
#include "harness/loading/deepspeed/not_built.h"
#include "harness/loading/deepspeed/offload.h"
#include "harness/loading/deepspeed/optimizer.h"
#include "harness/loading/deepspeed/precision.h"
#include "harness/loading/deepspeed/zero.h"

namespace seeksim::harness {
namespace {

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
                                                "activation_checkpointing",
                                                "tensorboard",
                                                "csv_monitor"};
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
    if (value.is_object() && value.size() == 1 && value.value("enabled", Json(true)) == false) continue;
    idle.push_back(key == "pipeline"     ? "pipeline (world.pipeline splits a model into stages)"
                   : key == "checkpoint" ? "checkpoint (\"checkpoint\" of the scenario writes checkpoints)"
                                         : key);
  }
  if (!idle.empty())
    scenario.notes.push_back(fmt::format("deepspeed keys without effect here: {}", fmt::join(idle, ", ")));
}

}  // namespace

void read_deepspeed(const Reader& section, int ranks, Scenario& scenario) {
  refuse_what_is_not_built(section);
  refuse_with_zero(section);
  read_zero(section, scenario);
  read_offload(section, scenario);
  read_batch(section, ranks, scenario);
  read_optimizer(section, scenario);
  read_scheduler(section, scenario);
  runtime::Definition& definition = scenario.train.definition;
  definition.gradient_clipping = section.number("gradient_clipping", runtime::default_clipping(definition.quirks));
  if (!section.has("gradient_clipping") && definition.gradient_clipping > 0) {
    scenario.notes.push_back("gradient_clipping 1 is DeepSpeed 0.19.8's default (0 turns it off)");
  }
  read_monitors(section, scenario);
  name_keys_without_effect(section, scenario);
}

Json deepspeed_json(const Scenario& scenario) {
  const runtime::Definition& d = scenario.train.definition;
  Json section = {{"train_batch_size", d.global_batch},
                  {"train_micro_batch_size_per_gpu", scenario.train.layout.micro_batch},
                  {"gradient_accumulation_steps", scenario.accumulation},
                  {"zero_optimization", zero_json(scenario.train.layout.zero)}};
  if (d.quantised.on()) section["zero_optimization"]["zero_quantized_weights"] = true;
  if (d.quantised_gradients.on()) section["zero_optimization"]["zero_quantized_gradients"] = true;
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
  write_monitors(scenario, section);
  return section;
}

}  // namespace seeksim::harness
