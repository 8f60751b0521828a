// What is drawn of DeepSpeed's expert layer (deepspeed.moe.layer.MoE), what of it does not go together, and what a case
// is held to.
#include "harness/torch/cases/features.h"

namespace seeksim::harness::torch {
namespace {

using Names = std::vector<std::string>;

const Names kMoe = {"moe"};
const Names kMoeOn = {"on"};
const Names kTwoOrFour = {"2", "4"};  // experts are on several ranks; there are several micro-batches, or ranks
const Names kStages12 = {"1", "2"};
const Names kNarrowOfMoe = {"bf16", "half"};

// Features of others that mean something with expert layers. A key of zero_optimization needs its stage 1 or 2.
const Names kAlsoOfMoe = {"np",           "precision",      "scale",         "optimizer",   "steps",
                          "accumulation", "clip",           "schedule",      "depth",       "width",
                          "inputs",       "tied",           "reused",        "frozen",      "norm",
                          "resume",       "keeps",          "into",          "recompute",   "look",
                          "evaluate",     "own_seeds",      "bucket",        "overlap",     "contiguous",
                          "round_robin",  "reduce_scatter", "gather_bucket", "partitions",  "multi_rank",
                          "aligned",      "offload",        "from_fp32",     "prescale",    "predivide",
                          "sent_as",      "added_as",       "immediate",     "backward",    "accumulates",
                          "scaled_by",    "made_by",        "ignore_unused", "compute_norm"};
const Names kOfStages12 = {"bucket",        "overlap",    "contiguous",    "round_robin", "reduce_scatter",
                           "gather_bucket", "partitions", "multi_rank",    "aligned",     "offload",
                           "from_fp32",     "backward",   "ignore_unused", "compute_norm"};

Feature of_moe(std::string name, Names values, std::string description, bool of_plain = false) {
  return {std::move(name), std::move(values), kMoe, of_plain, "", std::move(description)};
}
Rule cannot_moe(std::map<std::string, Names> when, std::string why) {
  when["wrapper"] = kMoe;
  return {std::move(when), Grade::bits, std::move(why)};
}
Rule holds_to(Grade grade, std::map<std::string, Names> when, std::string why) {
  return {std::move(when), grade, std::move(why)};
}

}  // namespace

bool is_moe(const Case& drawn) { return drawn.at("wrapper") == "moe"; }

void add_moe_features(std::vector<Feature>& to) {
  add_wrapper(to, "moe", kAlsoOfMoe);
  for (Feature& one : to) {
    if (one.name != "frozen") continue;
    one.values.insert(one.values.end(), {"gate", "expert"});
    one.description += "; with DeepSpeed's expert layers also the first block's gate, or one of its experts";
  }
  const std::vector<Feature> own = {
      of_moe("zero", {"0", "1", "2"}, "stage of ZeRO, with expert layers"),
      of_moe("ep", {"1", "2", "4"}, "MoE's ep_size: ranks that share the experts of a layer", true),
      of_moe("mixed", {"off", "on"}, "all blocks but the first have ep_size 1", true),
      of_moe("order", {"experts", "data"}, "data: use_data_before_expert_parallelism", true),
      of_moe("of", {"4", "2"}, "MoE's num_experts", true),
      of_moe("top", {"1", "2"}, "MoE's k: experts of a token", true),
      of_moe("room", {"all", "wide", "tight", "least"},
             "of an expert: drop_tokens=False; for all tokens; capacity_factor 1; min_capacity alone", true),
      of_moe("residual", {"off", "on"}, "MoE's use_residual", true),
      of_moe("expert_groups", {"one", "small", "off"},
             "split_params_into_different_moe_groups_for_optimizer(): a group of experts, or many of them "
             "(max_group_size); off: parameters as they are"),
  };
  to.insert(to.end(), own.begin(), own.end());
}

const std::vector<Need>& needs_of_moe() {
  static const std::vector<Need> all = [] {
    std::vector<Need> rows = {{"mixed", "ep", kTwoOrFour},
                              {"mixed", "depth", {"2", "3"}},
                              {"order", "ep", kTwoOrFour},
                              {"expert_groups", "made_by", {"script"}}};
    for (const std::string& name : kOfStages12) rows.push_back({name, "zero", kStages12, "moe"});
    return rows;
  }();
  return all;
}

std::vector<Rule> impossible_of_moe() {
  Names others = features().front().values;
  std::erase(others, "moe");
  std::vector<Rule> rules = {
      {{{"wrapper", others}, {"frozen", {"gate", "expert"}}}, Grade::bits, "They are of DeepSpeed's expert layers."},
      cannot_moe({{"precision", {"autocast", "fp16"}}}, "It is drawn in fp32, bf16 and DeepSpeed's fp16."),
      cannot_moe({{"scale", {"grows", "spike", "part"}}}, "It is drawn without."),
      cannot_moe({{"optimizer", {"muon", "cpu_adam"}}}, "It is drawn with torch's."),
      cannot_moe({{"optimizer", {"adagrad"}}, {"zero", kStages12}}, "DeepSpeed fails where there are two groups."),
      cannot_moe({{"recompute", {"deepspeed", "deepspeed_new"}}}, "It is drawn with torch's."),
      cannot_moe({{"norm", {"batch"}}}, "Its numbers depend on how ranks share the samples."),
      cannot_moe({{"keeps", {"module"}}, {"zero", {"0"}}}, "It is drawn with ZeRO 1 and 2."),
      cannot_moe({{"np", {"1"}}, {"ep", kTwoOrFour}}, "There are not as many ranks."),
      cannot_moe({{"np", {"2"}}, {"ep", {"4"}}}, "There are not as many ranks."),
      cannot_moe({{"of", {"2"}}, {"ep", {"4"}}}, "There are not as many experts."),
      cannot_moe({{"own_seeds", kMoeOn}, {"order", {"data"}}}, "Others have the first weights then."),
      cannot_moe({{"own_seeds", kMoeOn}, {"np", {"2"}}, {"ep", {"2"}}}, "Each rank has experts of its own."),
      cannot_moe({{"own_seeds", kMoeOn}, {"np", {"4"}}, {"ep", {"4"}}}, "Each rank has experts of its own."),
      cannot_moe({{"contiguous", {"false"}}}, "DeepSpeed asks for the other."),
      cannot_moe({{"reduce_scatter", {"false"}}}, "DeepSpeed asks for the other."),
      cannot_moe({{"expert_groups", {"off"}}, {"zero", kStages12}}, "DeepSpeed asks for groups of experts."),
      cannot_moe({{"expert_groups", {"off"}}, {"precision", kNarrowOfMoe}}, "DeepSpeed asks for groups of experts."),
      cannot_moe({{"expert_groups", {"off"}}, {"optimizer", {"groups"}}}, "They are split by names."),
      cannot_moe({{"frozen", {"body"}}}, "No expert would be trained."),
      cannot_moe({{"frozen", {"block"}}, {"depth", {"1"}}}, "No expert would be trained."),
      cannot_moe({{"frozen", {"expert"}}, {"of", {"4"}}, {"ep", {"4"}}}, "A rank would train no expert of a layer."),
      cannot_moe({{"frozen", {"expert"}}, {"of", {"2"}}, {"ep", {"2"}}}, "A rank would train no expert of a layer."),
      cannot_moe({{"frozen", {"expert"}}, {"expert_groups", {"small"}}, {"ep", kTwoOrFour}},
                 "Ranks would make other numbers of groups."),
      cannot_moe({{"frozen", {"block"}}, {"mixed", kMoeOn}, {"depth", {"2"}}}, "One kind of experts would be left."),
      cannot_moe({{"added_as", {"fp32"}}, {"zero", {"0"}}}, "DeepSpeed has no such mix at stage 0."),
      cannot_moe({{"compute_norm", {"false"}}, {"added_as", {"fp32"}}, {"zero", {"1"}}}, "DeepSpeed needs the norm."),
      cannot_moe({{"accumulates", {"coalesced"}}, {"zero", {"0"}}}, "It is for ZeRO 1 to 3."),
      cannot_moe({{"accumulates", {"unmanaged"}}, {"zero", {"1"}}, {"overlap", {"true"}}}, "It is for ZeRO 2."),
      cannot_moe({{"prescale", kMoeOn}, {"zero", {"2"}}}, "DeepSpeed does not prescale what it scatters."),
      cannot_moe({{"ignore_unused", {"false"}}}, "An expert without tokens has no gradient."),
  };
  return rules;
}

const std::vector<Rule>& expected_of_moe() {
  static const std::vector<Rule> rules = {
      holds_to(Grade::rounding, {{"precision", kNarrowOfMoe}},
               "DeepSpeed sums bf16 or fp16 gradients, and rounds them at places of its own."),
      holds_to(Grade::reassociated, {{"ep", kTwoOrFour}},
               "An expert multiplies the tokens of several ranks at once, and its gradient sums over them."),
      holds_to(Grade::reassociated, {{"top", {"2"}}}, "The two uses of a token are added in the order of experts."),
      holds_to(Grade::reassociated, {{"residual", kMoeOn}}, "The uses of a token are added in another order."),
      holds_to(Grade::reassociated, {{"width", {"13"}}},
               "An expert's matrices lie otherwise in memory, where odd ones are multiplied in another order."),
      holds_to(Grade::reassociated, {{"clip", kMoeOn}}, "The norm of the gradient is summed over other pieces."),
      holds_to(Grade::reassociated, {{"accumulation", kTwoOrFour}, {"zero", {"2"}}},
               "ZeRO 2 sums over ranks after each micro-batch."),
      holds_to(Grade::reassociated, {{"recompute", {"reentrant"}}, {"reused", kMoeOn}},
               "The recomputed use has a backward pass of its own, whose gradients are added apart."),
      holds_to(Grade::reassociated, {{"optimizer", {"fused"}}, {"zero", kStages12}},
               "The fused kernel rounds in vectors otherwise than at a shard's end."),
      holds_to(Grade::reassociated, {{"zero", kStages12}, {"aligned", {"false"}}},
               "Weights lie unaligned in a flat buffer, where a small product of matrices rounds otherwise."),
  };
  return rules;
}

}  // namespace seeksim::harness::torch
