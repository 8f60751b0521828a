#include "harness/torch/cases/features.h"

#include <algorithm>

namespace seeksim::harness::torch {
namespace {

using Names = std::vector<std::string>;

const Names kTorch = {"ddp", "fsdp1", "fsdp2", "hsdp"};
const Names kZero = {"zero0", "zero1", "zero2", "zero3"};
const Names kDriven = {"ddp", "zero0", "zero1", "zero2", "zero3"};  // by others than the script, too
const Names kPartitioned = {"zero1", "zero2", "zero3"};
const Names kZero12 = {"zero1", "zero2"};
const Names kZero3 = {"zero3"};
const Names kDrivers = {"accelerate", "fabric", "lightning", "trainer"};
const Names kLoaders = {"even", "short", "uneven"};

bool is_in(const Names& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// Both the model and how it is trained: the training by hand has them, too.
Feature of_training(std::string name, Names values, std::string description) {
  return {std::move(name), std::move(values), {}, true, "", std::move(description)};
}
Feature of_wrapper(std::string name, Names values, Names wrappers, std::string description) {
  return {std::move(name), std::move(values), std::move(wrappers), false, "", std::move(description)};
}
Feature of_zero(std::string name, Names values, Names wrappers, std::string key) {
  std::string description = "DeepSpeed's " + key;
  return {std::move(name), std::move(values), std::move(wrappers), false, std::move(key), std::move(description)};
}

std::vector<Feature> features_of_training() {
  const Names off_on = {"off", "on"};
  return {
      {"wrapper", {"ddp", "fsdp1", "fsdp2", "hsdp", "zero0", "zero1", "zero2", "zero3"}, {}, false, "", "who trains"},
      of_wrapper("loop", {"own", "accelerate", "fabric", "lightning", "trainer"}, kDriven,
                 "who calls backward() and step(): the script, accelerate, Lightning Fabric, Lightning's Trainer, "
                 "transformers' Trainer"),
      of_training("loader", {"off", "even", "short", "uneven"},
                  "samples come from a DataLoader that the driver deals out; short: the last step of an epoch lacks a "
                  "micro-batch; uneven: its last batch lacks samples"),
      of_training("epochs", {"2", "1"}, "in which the loader is read"),
      of_training("shuffled", off_on, "the loader's samples are shuffled, which Fabric does in its own way"),
      of_wrapper("deals", {"split", "batches", "sent"}, kDriven,
                 "accelerate's split_batches, its default, and dispatch_batches"),
      of_training("np", {"2", "1", "4"}, "ranks"),
      of_training("precision", {"fp32", "autocast", "bf16", "fp16", "half"},
                  "autocast to bf16; weights that are used in bf16; autocast to fp16 with a scaled loss; half: "
                  "DeepSpeed's fp16, weights that are used in it"),
      of_training("scale", {"dynamic", "grows", "static", "spike", "part"},
                  "the loss scale of fp16; grows, static: DeepSpeed's keys; spike: in one step a rank's gradient "
                  "overflows, or, part, that of its head, and all leave the step out"),
      of_training(
          "optimizer",
          {"sgd", "adamw", "groups", "foreach", "fused", "amsgrad", "adagrad", "nadam", "rmsprop", "asgd", "muon",
           "cpu_adam"},
          "SGD with momentum; AdamW, with two groups of parameters, foreach, fused, amsgrad; others; DeepSpeed's Muon "
          "(with tensor parallel layers torch's, of matrices alone); DeepSpeed's AdamW for the CPU"),
      of_training("steps", {"2", "4"}, "of the training; where it resumes, it does so in the middle"),
      of_training("accumulation", {"1", "2", "4"}, "micro-batches of a step"),
      of_training("clip", off_on, "the gradient's norm is clipped"),
      of_training("schedule", off_on, "the learning rate decays"),
      of_training("depth", {"1", "2", "3"}, "blocks"),
      of_training("width", {"8", "13"}, "of a block"),
      of_training("inputs", {"numbers", "tokens"}, "tokens: an embedding"),
      of_training("tied", off_on, "the head has the embedding's weight"),
      of_training("reused", off_on, "the first block is called again at the end"),
      of_training("frozen", {"off", "block", "bias", "body"},
                  "the first block, each bias, or all but the head requires no gradient"),
      of_training("turned", {"off", "freeze", "thaw"},
                  "from the middle on the first block requires no gradient; or before it"),
      of_training("unused", off_on, "a parameter that no forward pass uses"),
      of_training(
          "branch", {"off", "step", "rank", "late", "early"},
          "a layer that odd steps use; that some ranks use in a step; that all micro-batches but the first use; "
          "that the first one uses"),
      of_training("experts", {"0", "3"}, "each sample goes to one of them, so that some get none"),
      of_training("forwards", {"1", "2", "spare", "apart"},
                  "forward passes before a backward pass; spare: and one that nothing uses; apart: two, each of which "
                  "then has a backward pass of its own"),
      of_training("buffer", off_on, "a counter that goes up with each training pass, and numbers drawn by chance"),
      of_training("models", {"1", "2"}, "each with its own optimizer, trained in turns"),
      {"zeros", off_on, kTorch, true, "", "zero_grad(set_to_none=False)"},
      of_training("scalar", off_on, "a parameter without a dimension"),
      of_training("strided", off_on, "a parameter that lies transposed in memory"),
      of_training("normed", off_on, "the head is under weight_norm()"),
      of_training("norm", {"off", "on", "batch"}, "blocks begin with a LayerNorm, or a BatchNorm"),
      of_training("hook", {"off", "weight", "module"},
                  "register_hook() on a bias, or register_full_backward_hook() on its layer, halves a gradient"),
      of_training("dropout", off_on, "blocks have dropout"),
      of_training("output", {"tensor", "dict"}, "what the model returns"),
      of_wrapper("sync", {"last", "each"}, kTorch, "gradients are averaged after the last micro-batch, or after each"),
      of_wrapper("resume", off_on, {}, "the state is saved on the way, and new objects load it"),
      of_training("world", {"same", "fewer", "more"}, "ranks before it was resumed: half as many, or twice"),
      of_training("keeps", {"all", "weights", "module"},
                  "what is loaded of the state; weights: without the optimizer's; module: so, by DeepSpeed's "
                  "load_module_only"),
      of_wrapper("into", {"new", "same"}, {}, "the objects that load the state are new, or those that saved it"),
      of_wrapper(
          "state", {"default", "whole", "rank0", "rank0_both", "flat", "own"}, kTorch,
          "get_state_dict() as it is; all of it on each rank; on rank 0, which sends it, in two calls or in one; the "
          "optimizer's without levels; or the objects' own state_dict()"),
      of_wrapper("compile", {"off", "whole", "blocks"}, {},
                 "compile(backend=\"aot_eager\") of the model, or its blocks"),
      of_wrapper("sparse", off_on, {"ddp", "zero0"}, "the embedding's gradient is sparse"),
      of_wrapper("recompute", {"off", "on", "reentrant", "deepspeed", "deepspeed_new"}, {},
                 "activation checkpointing of blocks; deepspeed: its checkpoint(), or non_reentrant_checkpoint()"),
      of_wrapper("activations", {"kept", "parts"}, kZero, "DeepSpeed's checkpointing: partition_activations"),
      of_training(
          "edit", {"off", "on", "gradient", "moment"},
          "in the middle the script halves the head's bias (with ZeRO 3 a block's weight), its gradient before a "
          "step, or its first moment; with DeepSpeed by safe_set_full_fp32_param() and the like"),
      of_wrapper("look", {"off", "state", "whole"}, {},
                 "in the middle the state, or all weights, are taken and not used"),
      of_wrapper("gather", {"off", "whole", "16bit"}, {},
                 "at the end a bare model gets all weights: from the state, or by DeepSpeed's save_16bit_model()"),
      of_wrapper("evaluate", off_on, {}, "each step begins with a pass in eval mode, without gradients"),
      of_wrapper("own_seeds", off_on, kDriven,
                 "each rank draws other first weights, so that those of rank 0 have to be sent"),
  };
}

std::vector<Feature> features_of_zero() {
  const Names off_on = {"off", "on"};
  return {
      of_zero("bucket", {"500000000", "64"}, kZero, "reduce_bucket_size"),
      of_zero("gather_bucket", {"500000000", "64"}, kZero12, "allgather_bucket_size"),
      of_zero("overlap", {"default", "true", "false"}, kPartitioned, "overlap_comm"),
      of_zero("contiguous", {"true", "false"}, kPartitioned, "contiguous_gradients"),
      of_zero("round_robin", {"false", "true"}, kZero12, "round_robin_gradients"),
      of_zero("reduce_scatter", {"true", "false"}, kPartitioned, "reduce_scatter"),
      of_zero("partitions", {"true", "false"}, kZero12, "allgather_partitions"),
      of_zero("multi_rank", {"true", "false"}, kZero12, "use_multi_rank_bucket_allreduce"),
      of_zero("aligned", {"false", "true"}, kZero12, "parameter_alignment"),
      of_zero("ignore_unused", {"true", "false"}, kZero12, "ignore_unused_parameters"),
      of_wrapper("offload", off_on, kPartitioned, "DeepSpeed's offload_optimizer"),
      of_wrapper("ratio", {"1", "0.5"}, kZero3, "DeepSpeed's ratio of offload_optimizer: the rest stays"),
      of_wrapper("offload_param", off_on, kZero3, "DeepSpeed's offload_param"),
      of_zero("sub_group", {"1000000000", "100"}, kZero3, "sub_group_size"),
      of_zero("persistent", {"0", "20", "100000"}, kZero3, "stage3_param_persistence_threshold"),
      of_zero("fetch_ahead", {"50000000", "0", "100"}, kZero3, "stage3_prefetch_bucket_size"),
      of_zero("live", {"1000000000", "0"}, kZero3, "stage3_max_live_parameters"),
      of_zero("reuse_distance", {"1000000000", "0"}, kZero3, "stage3_max_reuse_distance"),
      of_zero("fetch_reduce", {"false", "true"}, kZero3, "stage3_use_all_reduce_for_fetch_params"),
      of_zero("sequential", {"false", "true"}, kZero3, "stage3_allgather_sequential"),
      of_zero("granularity", {"0", "1000"}, kZero3, "stage3_module_granularity_threshold"),
      of_zero("ds_linear", {"false", "true"}, kZero3, "memory_efficient_linear"),
      of_zero("model_persistent", {"9223372036854775807", "0"}, kZero3, "stage3_model_persistence_threshold"),
      of_zero("checked", {"false", "true"}, kZero3, "enable_sanity_checks"),
      of_zero("override_apply", {"true", "false"}, kZero3, "override_module_apply"),
      of_wrapper("leaf", off_on, kZero3, "DeepSpeed's set_z3_leaf_modules() on blocks"),
      of_zero("muon_in_memory", {"false", "true"}, kZero3, "save_muon_momentum_buffer_in_memory"),
      of_zero("load_piecewise", {"false", "true"}, kZero3, "pipeline_loading_checkpoint"),
      of_zero("from_fp32", {"true", "false"}, kZero12, "load_from_fp32_weights"),
      of_zero("compute_norm", {"true", "false"}, kZero12, "compute_grad_norm"),
      of_wrapper("pinned", off_on, kPartitioned, "DeepSpeed's pin_memory of offload_optimizer"),
      of_zero("secondary", {"1", "2"}, kZero3, "zero_hpz_partition_size"),
      of_wrapper("zero_init", off_on, kZero3, "the model is made under deepspeed.zero.Init"),
      of_wrapper("prescale", off_on, kZero, "DeepSpeed's prescale_gradients"),
      of_wrapper("predivide", off_on, kZero, "DeepSpeed's gradient_predivide_factor"),
      of_wrapper("sent_as", {"default", "fp32"}, kZero, "DeepSpeed's communication_data_type"),
      of_wrapper("added_as", {"default", "fp32", "bf16"}, kZero, "DeepSpeed's grad_accum_dtype"),
      of_wrapper("immediate", {"false", "true"}, kZero, "DeepSpeed's immediate_grad_update"),
      of_wrapper("backward", {"engine", "tensor"}, kPartitioned, "DeepSpeed's engine.backward(), or the loss's own"),
      of_wrapper("accumulates", {"engine", "boundary", "unmanaged", "coalesced"}, kZero,
                 "who ends a step of DeepSpeed: the engine counts; set_gradient_accumulation_boundary(); "
                 "managed_gradient_accumulation off; coalesce_grad_reduction()"),
      of_wrapper("scaled_by", {"engine", "script"}, kZero, "who divides by the micro-batches: or scale_wrt_gas=False"),
      of_wrapper("made_by", {"script", "config"}, kZero, "who makes the optimizer: DeepSpeed from its configuration"),
  };
}

std::vector<Need> needs_of_others() {
  return {
      {"sync", "accumulation", {"2", "4"}},
      {"sync", "loop", {"own"}},
      {"loader", "loop", kDrivers},
      {"loader", "branch", {"off"}},
      {"loader", "forwards", {"1", "spare"}},
      {"epochs", "loop", kDrivers},
      {"epochs", "loader", kLoaders},
      {"shuffled", "loop", {"fabric"}},
      {"shuffled", "loader", kLoaders},
      {"deals", "loop", {"accelerate"}},
      {"deals", "loader", kLoaders},
      {"evaluate", "loader", {"off"}},
      {"tied", "inputs", {"tokens"}},
      {"models", "loop", {"own"}},
      {"resume", "models", {"1"}},
      {"world", "resume", {"on"}},
      {"world", "loop", {"own"}},
      {"keeps", "resume", {"on"}},
      {"keeps", "world", {"same"}},
      {"keeps", "loop", {"own"}},
      {"keeps", "schedule", {"off"}},
      {"into", "resume", {"on"}},
      {"into", "world", {"same"}},
      {"into", "keeps", {"all"}},
      {"into", "loop", {"own", "accelerate", "fabric"}},
      {"state", "resume", {"on"}},
      {"state", "world", {"same"}},
      {"state", "loop", {"own"}},
      {"compile", "loop", {"own"}},
      {"sparse", "inputs", {"tokens"}},
      {"sparse", "tied", {"off"}},
      {"sparse", "optimizer", {"sgd", "adagrad"}},
      {"sparse", "clip", {"off"}},
      {"edit", "loop", {"own"}},
      {"edit", "models", {"1"}},
      {"look", "loop", {"own"}},
      {"look", "models", {"1"}},
      {"gather", "loop", {"own"}},
      {"gather", "models", {"1"}},
      {"gather", "precision", {"fp32"}},
      {"zeros", "loop", {"own", "accelerate", "fabric"}},
      {"evaluate", "loop", {"own", "accelerate", "fabric"}},
      {"predivide", "prescale", {"on"}},
      {"muon_in_memory", "optimizer", {"muon"}},
      {"muon_in_memory", "reduce_scatter", {"false"}},
      {"load_piecewise", "resume", {"on"}},
      {"from_fp32", "resume", {"on"}},
      {"compute_norm", "clip", {"off"}},
      {"pinned", "offload", {"on"}},
      {"ratio", "offload", {"on"}},
      {"ratio", "sub_group", {"100"}},
      {"ratio", "optimizer", {"cpu_adam"}},
      {"activations", "recompute", {"deepspeed", "deepspeed_new"}},
      {"activations", "loop", {"own"}},
      {"scale", "precision", {"fp16", "half"}},
      {"turned", "frozen", {"off"}},
      {"turned", "loop", {"own"}},
      {"turned", "models", {"1"}},
      {"sent_as", "precision", {"bf16", "half"}},
      {"added_as", "precision", {"bf16", "half"}},
      {"immediate", "precision", {"bf16"}},
      {"backward", "loop", {"own"}},
      {"accumulates", "loop", {"own"}},
      {"accumulates", "accumulation", {"2", "4"}},
      {"scaled_by", "loop", {"own"}},
      {"scaled_by", "accumulation", {"2", "4"}},
      {"made_by", "loop", {"own"}},
      {"made_by", "optimizer", {"adamw"}},
      {"made_by", "schedule", {"off"}},
      {"interval", "recompute", {"on", "reentrant"}},
      {"checkpointed", "recompute", {"on", "reentrant"}},
      {"tied", "layers", {"specs"}, "pipe"},
      {"reused", "layers", {"specs"}, "pipe"},
      {"dropout", "layers", {"specs"}, "pipe"},
      {"bucket", "stage", {"1"}, "pipe"},
      {"gather_bucket", "stage", {"1"}, "pipe"},
      {"overlap", "stage", {"1"}, "pipe"},
      {"contiguous", "stage", {"1"}, "pipe"},
      {"round_robin", "stage", {"1"}, "pipe"},
      {"reduce_scatter", "stage", {"1"}, "pipe"},
      {"partitions", "stage", {"1"}, "pipe"},
      {"multi_rank", "stage", {"1"}, "pipe"},
      {"aligned", "stage", {"1"}, "pipe"},
      {"offload", "stage", {"1"}, "pipe"},
      {"from_fp32", "stage", {"1"}, "pipe"},
      {"shared_by", "over", {"fsdp2", "hsdp", "replicate", "ddp", "hand"}},
      {"words", "inputs", {"tokens"}},
      {"retied", "tied", {"on"}},
      {"retied", "words", {"rows", "columns"}},
      {"retied", "logits", {"column", "row", "parallel"}},
      {"stream", "split", {"sequence"}},
      {"stream", "words", {"rows", "columns"}},
      {"stream", "logits", {"column", "row", "parallel"}},
      {"scattered", "split", {"pair", "dtensor", "column", "row", "sequence"}},
      {"clips", "clip", {"on"}},
      {"wrap", "over", {"fsdp2", "hsdp"}, "tp"},
      {"prefetch", "over", {"fsdp2", "hsdp"}, "tp"},
      {"reshard", "over", {"fsdp2", "hsdp"}, "tp"},
      {"shard_last", "over", {"fsdp2", "hsdp"}, "tp"},
      {"on_cpu", "over", {"fsdp2", "hsdp"}, "tp"},
      {"divide", "over", {"fsdp2", "hsdp"}, "tp"},
      {"keep", "over", {"fsdp2", "hsdp"}, "tp"},
      {"sync", "over", {"fsdp2", "hsdp", "replicate", "ddp"}, "tp"},
      {"ddp_bucket", "over", {"ddp"}, "tp"},
      {"bucket_view", "over", {"ddp"}, "tp"},
      {"find_unused", "over", {"ddp"}, "tp"},
      {"static_graph", "over", {"ddp"}, "tp"},
  };
}

const std::vector<Need>& needs() {
  static const std::vector<Need> all = [] {
    std::vector<Need> rows = needs_of_others();
    for (const std::vector<Need>& more : {needs_of_torch_options(), needs_of_stages(), needs_of_moe()})
      rows.insert(rows.end(), more.begin(), more.end());
    return rows;
  }();
  return all;
}

// What is missing for this feature in a case; none: it means something.
std::vector<const Need*> missing_for(const std::string& name, const Case& drawn) {
  std::vector<const Need*> missing;
  for (const Need& one : needs()) {
    const bool is_so = one.name == name && (one.wrapper.empty() || one.wrapper == drawn.at("wrapper"));
    if (is_so && !is_in(one.values, drawn.at(one.other))) missing.push_back(&one);
  }
  return missing;
}

}  // namespace

void add_wrapper(std::vector<Feature>& to, const std::string& wrapper, const Names& shared) {
  const Names others = to.front().values;
  for (Feature& one : to) {
    if (one.name == "wrapper")
      one.values.push_back(wrapper);
    else if (one.wrappers.empty() && !is_in(shared, one.name))
      one.wrappers = others;
    else if (!one.wrappers.empty() && is_in(shared, one.name))
      one.wrappers.push_back(wrapper);
  }
}

const std::vector<Feature>& features() {
  static const std::vector<Feature> all = [] {
    std::vector<Feature> rows = features_of_training();
    for (const std::vector<Feature>& more : {torch_options(), features_of_zero()})
      rows.insert(rows.end(), more.begin(), more.end());
    add_pipe_features(rows);
    add_tensor_features(rows);
    add_stages_features(rows);
    add_moe_features(rows);
    return rows;
  }();
  return all;
}

const Feature& feature(const std::string& name) {
  return *std::find_if(features().begin(), features().end(), [&](const Feature& one) { return one.name == name; });
}

bool applies(const Feature& feature, const Case& drawn) {
  const bool fits = feature.wrappers.empty() || is_in(feature.wrappers, drawn.at("wrapper"));
  return fits && missing_for(feature.name, drawn).empty();
}

Case normal(Case drawn) {
  for (const Feature& one : features()) drawn.try_emplace(one.name, one.values.front());
  for (const Feature& one : features())
    if (!applies(one, drawn)) drawn[one.name] = one.values.front();
  return drawn;
}

Case plain_case(const std::string& wrapper) {
  Case plain;
  for (const Feature& one : features()) plain[one.name] = one.values.front();
  plain["wrapper"] = wrapper;
  return plain;
}

std::string cannot_be(const Case& drawn) {
  // It is asked for each pair of features: rules of other wrappers are left out.
  static const std::map<std::string, std::vector<const Rule*>> by_wrapper = [] {
    std::map<std::string, std::vector<const Rule*>> rules;
    for (const std::string& wrapper : features().front().values)
      for (const Rule& rule : impossible()) {
        const auto of = rule.when.find("wrapper");
        if (of == rule.when.end() || is_in(of->second, wrapper)) rules[wrapper].push_back(&rule);
      }
    return rules;
  }();
  for (const Rule* rule : by_wrapper.at(drawn.at("wrapper")))
    if (rule->covers(drawn)) return rule->why;
  return "";
}

Pairs pairs_of(const Case& drawn) {
  Names words;
  for (const Feature& one : features()) {
    if (applies(one, drawn)) words.push_back(one.name + '=' + drawn.at(one.name));
  }
  Pairs pairs;
  for (std::size_t i = 0; i < words.size(); ++i) {
    for (std::size_t k = i + 1; k < words.size(); ++k) pairs.insert(words[i] + " & " + words[k]);
  }
  return pairs;
}

std::optional<Case> with_both(const Feature& a, const std::string& of_a, const Feature& b, const std::string& of_b,
                              const std::string& wrapper) {
  for (const Feature* one : {&a, &b})  // most pairs end here, before a case is made
    if (!one->wrappers.empty() && !is_in(one->wrappers, wrapper)) return std::nullopt;
  Case drawn = plain_case(wrapper);
  drawn["inputs"] = "tokens";
  drawn["accumulation"] = "2";
  drawn[a.name] = of_a;
  drawn[b.name] = of_b;
  for (const std::string& name : {a.name, b.name}) {
    for (const Need* need : missing_for(name, drawn))
      if (need->other != a.name && need->other != b.name) drawn[need->other] = need->values.front();
  }
  const Case wanted = drawn;
  drawn = normal(drawn);
  const auto kept = [&](const Feature& one) {
    return applies(one, drawn) && drawn.at(one.name) == wanted.at(one.name);
  };
  if (drawn.at("wrapper") != wrapper || !kept(a) || !kept(b)) return std::nullopt;
  // Some go only with others: the plain helpers are taken along.
  if (cannot_be(drawn).empty()) return drawn;
  for (const auto& [name, value] : Case{{"find_unused", "on"},
                                        {"offload", "on"},
                                        {"precision", "half"},
                                        {"optimizer", "sgd"},
                                        {"inputs", "numbers"},
                                        {"wrap", "root"},
                                        {"accumulation", "1"},
                                        {"depth", "2"},
                                        {"np", "4"}}) {
    Case other = drawn;
    if (name == a.name || name == b.name) continue;
    other[name] = value;
    other = normal(other);
    if (cannot_be(other).empty() && applies(a, other) && applies(b, other) && other.at(a.name) == of_a &&
        other.at(b.name) == of_b)
      return other;
  }
  return std::nullopt;
}

bool holds(const Case& drawn, const Case& part) {
  return std::all_of(part.begin(), part.end(), [&](const auto& one) { return drawn.at(one.first) == one.second; });
}

}  // namespace seeksim::harness::torch
