#include "harness/loading/deepspeed/zero.h"

#include <fmt/format.h>

#include <algorithm>

#include "harness/loading/deepspeed/not_built.h"
#include "harness/loading/deepspeed/offload.h"

namespace seeksim::harness {
namespace {

using namespace shapes;

// A key of zero_optimization that changes where or when work is done, and from which stage to which.
struct ZeroKey {
  const char* name;
  std::int64_t runtime::ZeroPlan::*value;
  int first_stage;
  int last_stage;
  Shape shape;
  const char* text;
};

const std::vector<ZeroKey>& acting_keys() {
  using Plan = runtime::ZeroPlan;
  static const std::vector<ZeroKey> table = {
      {"reduce_bucket_size", &Plan::reduce_bucket_elements, 1, 3, integer(1), "Elements of a bucket of gradients."},
      {"allgather_bucket_size", &Plan::allgather_bucket_elements, 1, 2, integer(0),
       "Elements of parameters that are gathered together."},
      {"sub_group_size", &Plan::sub_group_elements, 3, 3, integer(0),
       "Elements that the optimizer updates together; 0: all of a rank's (DeepSpeed: one parameter's)."},
      {"stage3_prefetch_bucket_size", &Plan::prefetch_elements, 3, 3, integer(0), "Elements that are gathered ahead."},
      {"stage3_param_persistence_threshold", &Plan::persistence_threshold_elements, 3, 3, integer(0),
       "Parameters with fewer elements stay gathered."},
      {"stage3_max_live_parameters", &Plan::max_live_parameters, 3, 3, integer(0),
       "Elements that are gathered at a time at most."},
      {"stage3_max_reuse_distance", &Plan::max_reuse_distance, 3, 3, integer(0),
       "A parameter that is used again within so many elements stays gathered."},
      {"zero_hpz_partition_size", &Plan::hpz_partition, 3, 3, integer(0),
       "ZeRO++'s hpZ: groups of so many ranks keep all parameters once more, and backward gathers inside a group. 0 "
       "and "
       "1: none do."},
  };
  return table;
}

// A key of zero_optimization that changes nothing here at any stage, and why.
struct IdleKey {
  const char* name;
  Shape shape;
  const char* why;
};

Shape leaf_modules() {
  const Shape names = list(text());
  return object_with({{"classes", names}, {"names", names}, {"name_suffixes", names}})
      .with("additionalProperties", false)
      .or_null();
}

constexpr const char* kOwnCheckpoints = "\"checkpoint\" of the scenario writes and reads checkpoints";

const std::vector<IdleKey>& idle_keys() {
  static const std::vector<IdleKey> table = {
      {"contiguous_gradients", flag(), "a bucket is always one piece"},
      {"reduce_scatter", flag(), "gradients always go to their owners only"},
      {"use_multi_rank_bucket_allreduce", flag(), "gradients always go to their owners only"},
      {"allgather_partitions", flag(), "parameters always come by all-gather"},
      {"round_robin_gradients", flag(), "shards are cut evenly"},
      {"load_from_fp32_weights", flag(), kOwnCheckpoints},
      {"elastic_checkpoint", flag(), kOwnCheckpoints},
      {"pipeline_loading_checkpoint", flag(), kOwnCheckpoints},
      {"stage3_gather_16bit_weights_on_model_save", flag(), "--save-final always writes whole tensors"},
      {"cpu_offload_use_pin_memory", flag().or_null(), "deprecated, DeepSpeed calls it offload_optimizer.pin_memory"},
      {"stage3_model_persistence_threshold", integer(0), "what persists is decided parameter by parameter"},
      {"stage3_module_granularity_threshold", integer(), "parameters are gathered layer by layer"},
      {"stage3_use_all_reduce_for_fetch_params", flag(), "parameters always come by all-gather"},
      {"stage3_allgather_sequential", flag(), "gathers of a queue follow one another"},
      {"leaf_module", leaf_modules(), "parameters are gathered layer by layer"},
      {"ignore_unused_parameters", flag(), "every trained parameter is used"},
      {"memory_efficient_linear", flag(), "activations are kept by layer"},
      {"override_module_apply", flag(), "there are no modules to override"},
      {"log_trace_cache_warnings", flag(), "nothing is traced"},
      {"save_muon_momentum_buffer_in_memory", flag(), "there is no Muon"},
      {"parameter_alignment", flag(), "shards are cut as the contract says"},
      {"compute_grad_norm", flag(), "the norm is always computed"},
      {"enable_sanity_checks", flag(), "a scenario names its checks"},
  };
  return table;
}

const char* why_idle(const std::string& key) {
  if (key == "offload_optimizer" || key == "offload_param") return "its device is none";
  for (const IdleKey& idle : idle_keys()) {
    if (key == idle.name) return idle.why;
  }
  return nullptr;
}

}  // namespace

const Keys<Scenario>& zero_keys() {
  static const Keys<Scenario> keys = [] {
    std::vector<Key<Scenario>> rows = {
        {"stage", by_hand, integer(0, 3).standard(0), kNoBit,
         "0: all replicated; 1: optimizer state sharded; 2: gradients too; 3: parameters too."},
        {"overlap_comm", by_hand, flag().or_null(), kNoBit,
         "Whether reductions overlap with backward. Unset: true at stage 3."},
        {"offload_optimizer", by_hand, offload_optimizer_keys().shape().or_null(), kNoBit,
         "Stages 1 to 3: masters, moments and reduced gradients leave the device, and the optimizer runs on the host's "
         "processor. Changes no bit."},
        {"offload_param", by_hand, offload_param_keys().shape().or_null(), kNoBit,
         "Stage 3: this rank's shard of the parameters leaves the device. Changes no bit."},
        {"zero_quantized_weights", by_hand, flag(), kBits,
         "ZeRO++'s qwZ, at stage 3: gathers send parameters in 8 bits with a scale a block, and every layer computes "
         "with what these are worth. Decides bits, whatever the number of ranks."},
        {"zero_quantized_nontrainable_weights", by_hand, flag(), kNoBit, "Not supported."},
        {"zero_quantized_gradients", by_hand, flag(), kBits,
         "ZeRO++'s qgZ, at stages 2 and 3: gradients go to their owners in 4 or 8 bits with a scale a block, group of "
         "samples by group (quantized_gradients). Decides bits, whatever the number of ranks."},
        {"zenflow", by_hand, object().or_null(), kNoBit, "Not supported."},
        {"legacy_stage1", by_hand, flag(), kNoBit, "Only false: DeepSpeed refuses it too."}};
    for (const ZeroKey& key : acting_keys()) rows.push_back({key.name, by_hand, key.shape, kNoBit, key.text});
    for (const IdleKey& key : idle_keys())
      rows.push_back({key.name, by_hand, key.shape, kNoBit, fmt::format("No effect: {}.", key.why)});
    return Keys<Scenario>(std::move(rows));
  }();
  return keys;
}

bool acts_at_stage(const std::string& key, int stage) {
  if (key == "stage") return true;
  if (key == "overlap_comm") return stage >= 1;
  if (key == "zero_quantized_weights") return stage == 3;
  if (key == "zero_quantized_gradients") return stage >= 2;
  return std::any_of(acting_keys().begin(), acting_keys().end(), [&](const ZeroKey& known) {
    return key == known.name && stage >= known.first_stage && stage <= known.last_stage;
  });
}

void read_zero(const Reader& section, Scenario& scenario) {
  const Reader zero = section.child("zero_optimization");
  runtime::ZeroPlan plan = runtime::zero_plan(int(std::clamp<std::int64_t>(zero.integer("stage", 0), 0, 3)));
  plan.own_placement = scenario.train.layout.zero.own_placement;  // "world" was read before
  plan.rule = scenario.train.layout.zero.rule;
  plan.overlap_comm = zero.flag("overlap_comm", plan.overlap_comm);
  constexpr std::int64_t kMost = 1'000'000'000'000'000;  // all there is
  for (const ZeroKey& key : acting_keys()) {
    const std::int64_t value = zero.integer(key.name, plan.*key.value);
    plan.*key.value = std::clamp<std::int64_t>(value, 0, kMost);
  }
  if (plan.sub_group_elements == 0) plan.sub_group_elements = kMost;
  if (plan.allgather_bucket_elements == 0 && (plan.stage == 1 || plan.stage == 2)) {
    zero.problem("allgather_bucket_size", fmt::format("0 at stage {}: DeepSpeed divides by it", plan.stage),
                 "Give a number of elements, or remove it.");
  }
  scenario.train.layout.zero = plan;
  scenario.train.definition.quantised.weights = plan.stage == 3 && zero.flag("zero_quantized_weights", false);
}

Json zero_json(const runtime::ZeroPlan& plan) {
  Json section = {{"stage", plan.stage}};
  if (plan.stage == 0) return section;
  section["overlap_comm"] = plan.overlap_comm;
  for (const ZeroKey& key : acting_keys()) {
    const bool off = key.value == &runtime::ZeroPlan::hpz_partition && plan.hpz_partition <= 1;
    if (plan.stage >= key.first_stage && plan.stage <= key.last_stage && !off) section[key.name] = plan.*key.value;
  }
  return section;
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
  if (section.text("gradient_allreduce_op") == "sum") {
    section.problem("gradient_allreduce_op",
                    stage == 3 ? "gradient_allreduce_op='sum' is not supported with ZeRO stage 3"
                               : fmt::format("{}: \"sum\"", kNotBuilt),
                    "Use \"mean\".");
  }
  if (zero.flag("legacy_stage1", false))
    zero.problem("legacy_stage1", "DeepSpeed refuses it: the old stage 1 is removed", "Remove it.");
  if (!zero.flag("compute_grad_norm", true) && stage != 1 && stage != 2) {
    zero.problem("compute_grad_norm", "compute_grad_norm=false is supported only with ZeRO Stage 1 or 2", "Remove it.");
  }
}

}  // namespace seeksim::harness
