// torch 2.15: torch/distributed/fsdp/api.py, torch/distributed/fsdp/_fully_shard/_fsdp_api.py and _fully_shard.py.
#include "harness/loading/fsdp_form.h"

#include <fmt/format.h>

#include <string>
#include <vector>

#include "harness/loading/deepspeed/pointers.h"

#include <nlohmann/json.hpp>

namespace seeksim::harness {
namespace {

using namespace shapes;

// More elements than any model has: what forward has gathered stays until backward has used it.
constexpr std::int64_t kAll = 1'000'000'000'000'000;
constexpr const char* kFsdp = "/fsdp";

// Version 1's strategies: what is sharded, and whether inside groups of ranks.
struct Strategy {
  const char* name;
  int stage;
  bool reshards;
  bool in_groups;
};
constexpr Strategy kStrategies[] = {
    {"FULL_SHARD", 3, true, false},  {"SHARD_GRAD_OP", 3, false, false},      {"NO_SHARD", 0, true, false},
    {"HYBRID_SHARD", 3, true, true}, {"_HYBRID_SHARD_ZERO2", 3, false, true},
};

const Strategy* strategy_named(const std::string& name) {
  for (const Strategy& one : kStrategies)
    if (name == one.name) return &one;
  return nullptr;
}

std::vector<std::string> strategy_names() {
  std::vector<std::string> names;
  for (const Strategy& one : kStrategies) names.emplace_back(one.name);
  return names;
}

class FsdpFormer {
 public:
  explicit FsdpFormer(Document& document) : document_(document), section_(document.json().at("fsdp")) {}

  Forms run() {
    if (!whole()) return std::move(forms_);
    shard();
    groups();
    types();
    offload();
    return std::move(forms_);
  }

 private:
  template <class T>
  T value(const char* key, T standard) const {
    const auto found = section_.find(key);
    if (found == section_.end()) return standard;
    if constexpr (std::is_same_v<T, bool>) return found->is_boolean() ? found->template get<bool>() : standard;
    if constexpr (std::is_same_v<T, std::string>)
      return found->is_string() ? found->template get<std::string>() : standard;
    if constexpr (std::is_same_v<T, std::int64_t>)
      return found->is_number_integer() ? found->template get<std::int64_t>() : standard;
  }
  bool has(const char* key) const { return section_.contains(key); }

  void problem(const char* key, std::string what, std::string next) {
    forms_.problems.push_back(document_.problem(std::string(kFsdp) + '/' + key, std::move(what), std::move(next)));
  }

  // What both say would hold twice, and one of the two would be passed over.
  bool whole() {
    Json& document = document_.json();
    const auto deepspeed = document.find("deepspeed");
    if (deepspeed == document.end() || !deepspeed->is_object()) return false;
    for (const char* key : {"zero_optimization", "fp16", "bf16", "data_types"}) {
      if (!deepspeed->contains(key)) continue;
      const std::string there = std::string(kSection) + '/' + key;
      forms_.problems.push_back(
          document_.problem(there, "\"fsdp\" says this in its own words", "Keep one of the two."));
    }
    version_ = value<std::int64_t>("version", 2);
    const char* const other = version_ == 1 ? "reshard_after_forward" : "sharding_strategy";
    if (has(other))
      problem(other, fmt::format("version {} of FSDP has no {}", version_, other),
              version_ == 1 ? "Give sharding_strategy, or version 2." : "Give reshard_after_forward, or version 1.");
    return forms_.problems.empty();
  }

  void put(const std::string& pointer, Json what, const char* from) {
    document_.json()[Json::json_pointer(pointer)] = std::move(what);
    forms_.written[pointer] = std::string(kFsdp) + (has(from) ? '/' + std::string(from) : std::string());
  }

  // Modules are the embeddings, each layer, and the head: what fully_shard is called on, as torchtitan does.
  void shard() {
    const char* const by = version_ == 1 ? "sharding_strategy" : "reshard_after_forward";
    const std::string zero = std::string(kSection) + "/zero_optimization";
    const Strategy* const strategy = strategy_named(value<std::string>("sharding_strategy", "FULL_SHARD"));
    if (strategy == nullptr) return;  // the schema says so
    const std::int64_t group = value<std::int64_t>("reshard_after_forward", 0);
    const bool reshards = version_ == 1 ? strategy->reshards : value("reshard_after_forward", true);
    put(zero + "/stage", strategy->stage, by);
    in_groups_ = strategy->in_groups;
    if (strategy->stage < 3) return;
    put(zero + "/stage3_param_persistence_threshold", 0, by);
    put(zero + "/stage3_max_reuse_distance", reshards ? 0 : kAll, by);
    put(zero + "/stage3_max_live_parameters", kAll, by);
    put(zero + "/stage3_prefetch_bucket_size", value("prefetch", true) ? 50'000'000 : 0, "prefetch");
    if (group > 1) put(zero + "/zero_hpz_partition_size", group, by);
  }

  void groups() {
    if (!has("shard_size")) {
      if (in_groups_)
        problem("sharding_strategy",
                "hybrid sharding has groups of ranks that share the parameters, and no size of them",
                "Give shard_size: torch takes the ranks of a node.");
      return;
    }
    if (version_ == 1 && !in_groups_)
      return problem("shard_size", "only hybrid strategies of version 1 shard inside groups",
                     "Use HYBRID_SHARD or _HYBRID_SHARD_ZERO2, or remove it.");
    put("/world/shard_group", section_.at("shard_size"), "shard_size");
  }

  // Parameters stay fp32 where they are sharded, and what computes is cast: masters, in the other words.
  void types() {
    const std::string compute = value<std::string>("param_dtype", "fp32"),
                      reduce = value<std::string>("reduce_dtype", "fp32");
    if (compute == "bf16" || compute == "fp16")
      put(std::string(kSection) + '/' + compute + "/enabled", true, "param_dtype");
    if (compute == "fp16" && !document_.json().contains("grad_scaler"))
      put("/grad_scaler", {{"enabled", false}}, "param_dtype");
    if (reduce == "fp32") return;
    if (compute != reduce)
      return problem("reduce_dtype",
                     fmt::format("gradients of {} parameters are summed in fp32 here, and held in it", compute),
                     "Use \"fp32\", or the type of param_dtype.");
    put(std::string(kSection) + "/data_types/grad_accum_dtype", reduce, "reduce_dtype");
  }

  void offload() {
    if (!value("cpu_offload", false)) return;
    const std::string zero = std::string(kSection) + "/zero_optimization";
    put(zero + "/offload_optimizer", {{"device", "cpu"}}, "cpu_offload");
    if (document_.json()[Json::json_pointer(zero + "/stage")] == 3)
      put(zero + "/offload_param", {{"device", "cpu"}}, "cpu_offload");
  }

  Document& document_;
  const Json section_;
  std::int64_t version_ = 2;
  bool in_groups_ = false;
  Forms forms_;
};

}  // namespace

// What decides bits of these are the keys that they are brought to.
const Keys<FsdpWords>& fsdp_keys() {
  static const Keys<FsdpWords> keys = {
      {"version", by_hand, choice({1, 2}).standard(2), kNoBit,
       "1: FullyShardedDataParallel around each layer; 2: fully_shard on each layer."},
      {"reshard_after_forward", by_hand, either(flag(), integer(2)).standard(true), kNoBit,
       "Version 2. true: a layer's parameters are given up after forward and gathered again for backward; false: they "
       "stay; a number: backward gathers in groups of so many ranks, which keep all parameters once more."},
      {"sharding_strategy", by_hand, choice(strategy_names()).standard("FULL_SHARD"), kNoBit,
       "Version 1. FULL_SHARD gives parameters up after forward, SHARD_GRAD_OP after backward, NO_SHARD shards "
       "nothing; "
       "the hybrid ones are the first two inside groups of shard_size ranks."},
      {"shard_size", by_hand, integer(1).unset(), kNoBit,
       "Ranks that share one copy of the parameters (HSDP): the last dimension of the mesh. Unset: all."},
      {"param_dtype", by_hand, choice({"fp32", "bf16", "fp16"}).standard("fp32"), kNoBit,
       "Of mp_policy: what parameters are cast to before a layer uses them; shards stay fp32. fp16 has no loss scale "
       "unless grad_scaler gives one, as in torch."},
      {"reduce_dtype", by_hand, choice({"fp32", "bf16", "fp16"}).standard("fp32"), kNoBit,
       "Of mp_policy: fp32, or the type of param_dtype, to which gradients are rounded once when they are summed; "
       "torch "
       "rounds at each addition."},
      {"cpu_offload", by_hand, flag().standard(false), kNoBit,
       "Shards, gradients and the optimizer's state are in host memory, where the optimizer runs."},
      {"prefetch", by_hand, flag().standard(true), kNoBit, "The next layer is gathered while one computes."},
  };
  return keys;
}

Forms bring_fsdp_to_form(Document& document) {
  const auto section = document.json().find("fsdp");
  if (section == document.json().end() || !section->is_object()) return {};
  return FsdpFormer(document).run();
}

}  // namespace seeksim::harness
