// DeepSpeed 0.19.8: runtime/config.py, runtime/zero/config.py, runtime/precision_config.py, runtime/config_utils.py.
#include "harness/loading/deepspeed/forms.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string_view>

#include "harness/loading/deepspeed/auto_values.h"
#include "harness/loading/deepspeed/deepspeed_keys.h"
#include "harness/loading/deepspeed/lax.h"
#include "harness/loading/deepspeed/optimizer.h"
#include "harness/loading/deepspeed/pointers.h"

#include <nlohmann/json.hpp>

namespace seeksim::harness {
namespace {

constexpr const char* kZero = "/deepspeed/zero_optimization";

// What DeepSpeed has removed. It refuses the key, whatever its value.
struct Removed {
  const char* pointer;  // below the section
  const char* why;
  const char* next;
};

constexpr Removed kRemoved[] = {
    {"/amp", "Apex AMP is removed", "Remove it; use fp16, bf16 or torch_autocast."},
    {"/elasticity", "elastic training is removed", "Remove it and give the batch sizes."},
    {"/curriculum_learning", "the curriculum of the top level is removed",
     "Remove it; its successor is data_efficiency.data_sampling.curriculum_learning, and a scenario has "
     "\"curriculum\"."},
    {"/progressive_layer_drop", "progressive layer dropping is removed", "Remove it."},
    {"/eigenvalue", "quantization by eigenvalues is removed", "Remove it."},
    {"/sparse_attention", "sparse attention is removed", "Remove it."},
    {"/sparse_gradients", "sparse gradients of dense embeddings are removed", "Remove it."},
    {"/compression_training", "the compression library is removed", "Remove it."},
    {"/quantize_training", "mixture of quantization is removed", "Remove it."},
    {"/graph_harvesting", "graph harvesting is removed", "Remove it."},
    {"/nebula", "Nebula checkpointing is removed", "Remove it."},
    {"/zero_optimization/mics_shard_size", "MiCS is removed", "Remove it; world.shard_group does the same here."},
    {"/zero_optimization/mics_hierarchical_params_gather", "MiCS is removed", "Remove it."},
    {"/zero_optimization/zeropp_loco_param", "LoCo is removed", "Remove it."},
};

// Fields of zero_optimization that DeepSpeed reads by their name as by their alias, which has stage3_ in front.
constexpr const char* kFields[] = {"prefetch_bucket_size",         "param_persistence_threshold",
                                   "model_persistence_threshold",  "max_live_parameters",
                                   "max_reuse_distance",           "gather_16bit_weights_on_model_save",
                                   "module_granularity_threshold", "use_all_reduce_for_fetch_params",
                                   "allgather_sequential"};

// Sections that DeepSpeed reads with pydantic, and those of which it takes what it knows and passes over the rest.
constexpr const char* kStrictSections[] = {"zero_optimization", "fp16",        "bf16",  "hybrid_engine", "compile",
                                           "comms_logger",      "tensorboard", "wandb", "csv_monitor",   "comet"};
constexpr const char* kLooseSections[] = {"",  // the top level
                                          "optimizer", "scheduler", "data_types", "aio", "activation_checkpointing"};

constexpr std::size_t kToldMost = 20;

class Former {
 public:
  explicit Former(Document& document) : document_(document) {}

  Forms run() {
    refuse_removed();
    old_zero();
    old_bf16();
    scales_of_bf16();
    field_names();
    old_offload();
    settle_optimizer();
    pass_over_unknown();
    read_quoted();
    lower_words();
    fill_auto(document_, forms_.notes, forms_.problems);
    return std::move(forms_);
  }

 private:
  bool has(const std::string& pointer) const { return has_at(document_.json(), pointer); }
  Json& at(const std::string& pointer) { return document_.json().at(Json::json_pointer(pointer)); }
  void erase(const std::string& pointer) { erase_at(document_.json(), pointer); }
  void move(const std::string& from, const std::string& to) {
    Json value = std::move(at(from));
    erase(from);
    document_.json()[Json::json_pointer(to)] = std::move(value);
    forms_.written[to] = from;
  }
  void refuse(const std::string& pointer, std::string what, std::string next) {
    forms_.problems.push_back(document_.problem(pointer, std::move(what), std::move(next)));
  }

  void refuse_removed() {
    for (const Removed& one : kRemoved) {
      const std::string pointer = kSection + std::string(one.pointer);
      if (!has(pointer)) continue;
      refuse(pointer, fmt::format("DeepSpeed 0.19.8 refuses it, also where it is off: {}", one.why), one.next);
      erase(pointer);
    }
  }

  // true and false in place of the section.
  void old_zero() {
    if (!has(kZero) || !at(kZero).is_boolean()) return;
    const bool on = at(kZero).get<bool>();
    Json section = {{"stage", on ? 1 : 0}};
    const std::string size = kSection + std::string("/allgather_size");
    if (on && has(size)) section["allgather_bucket_size"] = at(size);
    at(kZero) = std::move(section);
    forms_.notes.push_back(
        fmt::format("zero_optimization: {} is DeepSpeed's old form, and means stage {}", on, on ? 1 : 0));
  }

  void old_bf16() {
    const std::string name = kSection + std::string("/bf16"), old = kSection + std::string("/bfloat16");
    if (has(name) && at(name).is_null()) erase(name);
    if (!has(old)) return;
    if (has(name)) {
      forms_.notes.emplace_back("bfloat16 is passed over, as in DeepSpeed: bf16 is there");
      erase(old);
    } else {
      forms_.notes.emplace_back("bfloat16 is read as bf16, whose old name it is");
      move(old, name);
    }
  }

  void scales_of_bf16() {
    for (const char* key : {"loss_scale", "initial_scale_power", "loss_scale_window", "hysteresis",
                            "consecutive_hysteresis", "min_loss_scale"}) {
      const std::string pointer = kSection + ("/bf16/" + std::string(key));
      if (!has(pointer)) continue;
      refuse(pointer, "bf16 has no loss scale, and DeepSpeed refuses the key", "Remove it.");
      erase(pointer);
    }
  }

  void field_names() {
    const std::string zero = kZero + std::string("/");
    for (const char* field : kFields) {
      const std::string alias = std::string("stage3_") + field;
      if (!has(zero + field)) continue;
      if (has(zero + alias)) {
        refuse(zero + field, fmt::format("{} is there too, and names the same", alias), "Keep one of the two.");
        erase(zero + field);
      } else {
        move(zero + field, zero + alias);
      }
    }
    replace(
        "stage3_gather_fp16_weights_on_model_save", "stage3_gather_16bit_weights_on_model_save",
        [](const Json& value) { return value; }, false);
  }

  void old_offload() {
    const auto on_cpu = [](const Json& value) { return value == true ? Json({{"device", "cpu"}}) : Json(nullptr); };
    replace("cpu_offload", "offload_optimizer", on_cpu, true);
    replace("cpu_offload_param", "offload_param", on_cpu, true);
  }

  // A deprecated key of zero_optimization, by which DeepSpeed sets another one.
  template <class Made>
  void replace(const char* old, const char* name, const Made& made, bool takes_null) {
    const std::string from = kZero + std::string("/") + old, to = kZero + std::string("/") + name;
    if (!has(from)) return;
    if (has(to)) {
      refuse(from,
             fmt::format("Cannot provide deprecated parameter '{}' and replacing parameter '{}' together", old, name),
             fmt::format("Keep {}.", name));
      erase(from);
      return;
    }
    Json value = at(from);
    read_laxly({{"type", "boolean"}}, value);
    if (!value.is_boolean() && !(takes_null && value.is_null())) {
      refuse(from, "true or false was expected", fmt::format("Write {} in its place.", name));
      erase(from);
      return;
    }
    const Json replacing = made(value);
    if (replacing.is_null()) {
      erase(from);
    } else {
      move(from, to);
      at(to) = replacing;
    }
    forms_.notes.push_back(
        fmt::format("zero_optimization.{} is deprecated: read as {}", old,
                    replacing.is_null() ? "nothing" : fmt::format("\"{}\": {}", name, replacing.dump())));
  }

  // An optimizer without a type is none to DeepSpeed; the numbers of one that is not built are not looked at.
  void settle_optimizer() {
    const std::string optimizer = kSection + std::string("/optimizer"),
                      scheduler = kSection + std::string("/scheduler");
    for (const std::string& section : {optimizer, scheduler}) {
      if (!has(section) || !at(section).is_object()) continue;
      if (!has(section + "/type")) {
        forms_.notes.push_back(
            fmt::format("{} is passed over, as in DeepSpeed: it has no type", dotted(section.substr(10))));
        erase(section);
        continue;
      }
      const Json& type = at(section + "/type");
      if (!type.is_string() || !has(section + "/params")) continue;
      const std::string& name = type.get_ref<const std::string&>();
      if (section == optimizer ? !is_built_optimizer(name) : !is_built_scheduler(name)) erase(section + "/params");
    }
  }

  // One line for all of them.
  void pass_over_unknown() {
    static const Json schema = deepspeed_keys().shape().schema();
    std::vector<std::string> told;
    std::size_t count = 0;
    for (const char* section : kLooseSections) {
      const std::string pointer = *section ? kSection + ('/' + std::string(section)) : kSection;
      if (!has(pointer) || !at(pointer).is_object()) continue;
      const Json& known = *section ? schema["properties"][section]["properties"] : schema["properties"];
      Json kept = Json::object();
      for (auto& [key, value] : at(pointer).items()) {
        if (known.contains(key)) {
          kept[key] = std::move(value);
        } else if (++count <= kToldMost) {
          told.push_back(in_words(section, key, known));
        }
      }
      at(pointer) = std::move(kept);
    }
    if (count > kToldMost) told.push_back(fmt::format("and {} more", count - kToldMost));
    if (count > 0)
      forms_.notes.push_back(
          fmt::format("passed over, as DeepSpeed does with keys that it does not know: {}", fmt::join(told, ", ")));
  }

  static std::string in_words(const std::string& section, const std::string& key, const Json& known) {
    std::vector<std::string> names;
    for (const auto& [name, ignored] : known.items()) names.push_back(name);
    const std::string near = closest(key, names), name = in_quotes(section.empty() ? key : section + '.' + key);
    return near.empty() ? name : fmt::format("{} (did you mean \"{}\"?)", name, near);
  }

  void read_quoted() {
    static const Json schema = deepspeed_keys().shape().schema();
    for (const char* section : kStrictSections) {
      const std::string pointer = kSection + ('/' + std::string(section));
      if (has(pointer)) read_laxly(schema["properties"][section], at(pointer));
    }
  }

  // DeepSpeed compares these in lower case.
  void lower_words() {
    for (const char* key :
         {"/communication_data_type", "/seq_parallel_communication_data_type", "/gradient_allreduce_op"}) {
      const std::string pointer = kSection + std::string(key);
      if (has(pointer) && at(pointer).is_string()) at(pointer) = lower(at(pointer).get<std::string>());
    }
  }

  Document& document_;
  Forms forms_;
};

}  // namespace

Forms bring_to_form(Document& document) {
  const auto section = document.json().find("deepspeed");
  if (section == document.json().end() || !section->is_object()) return {};
  return Former(document).run();
}

std::vector<Problem> as_written(std::vector<Problem> problems, const Forms& forms, const Document& document) {
  for (Problem& problem : problems) {
    for (const auto& [to, from] : forms.written) {
      const std::string path = dotted(to);
      if (problem.path != path && !problem.path.starts_with(path + '.')) continue;
      problem.path.replace(0, path.size(), dotted(from));
      problem.place = document.place(from);
      break;
    }
  }
  return problems;
}

}  // namespace seeksim::harness
