// What is drawn of torch's tensor parallel layers, what of it does not go together, and what a case is held to.
#include <algorithm>
#include <optional>

#include "harness/torch/cases/features.h"

namespace seeksim::harness::torch {
namespace {

using Names = std::vector<std::string>;
using When = std::map<std::string, Names>;

const Names kTensors = {"tp"};
const Names kFullyShard = {"fsdp2", "hsdp", "replicate"};  // that go by FSDP2's code
const Names kMoreThanOne = {"2", "4"};
const Names kSequence = {"sequence"};
const Names kSplit = {"pair", "dtensor", "column", "row", "sequence"};
const Names kSharedWords = {"rows", "columns"};
const Names kLogits = {"column", "row", "parallel"};
const Names kEachBranch = {"step", "rank", "late", "early"};

// Features of others that mean something with tensor parallel layers.
const Names kAlso = {"np",          "precision",   "scale",       "optimizer", "steps",    "accumulation", "clip",
                     "schedule",    "depth",       "width",       "inputs",    "tied",     "reused",       "frozen",
                     "turned",      "unused",      "branch",      "experts",   "forwards", "buffer",       "models",
                     "zeros",       "scalar",      "strided",     "normed",    "norm",     "hook",         "dropout",
                     "output",      "sync",        "resume",      "world",     "keeps",    "into",         "state",
                     "compile",     "recompute",   "edit",        "look",      "gather",   "evaluate",     "wrap",
                     "prefetch",    "reshard",     "shard_last",  "on_cpu",    "divide",   "keep",         "ddp_bucket",
                     "find_unused", "bucket_view", "static_graph"};

Feature of_tensors(std::string name, Names values, std::string description, bool of_plain = false) {
  return {std::move(name), std::move(values), kTensors, of_plain, "", std::move(description)};
}

Rule cannot_share(When when, std::string why) {
  when["wrapper"] = kTensors;
  return {std::move(when), Grade::bits, std::move(why)};
}
Rule expects(Grade grade, When when, std::string why) { return {std::move(when), grade, std::move(why)}; }

// A part of a case that holds what both hold; none: they do not go together.
std::optional<When> with(When one, const When& other) {
  for (const auto& [name, values] : other) {
    const auto found = one.find(name);
    Names both = values;
    if (found != one.end())
      std::erase_if(both, [&](const std::string& value) {
        return std::find(found->second.begin(), found->second.end(), value) == found->second.end();
      });
    if (both.empty()) return std::nullopt;
    one[name] = both;
  }
  return one;
}

// What takes a list of tensors, and not some that are spread over ranks beside some that are not.
void add_mixed(const When& what, const std::string& why, std::vector<Rule>& to) {
  const std::vector<When> plain = {
      {{"split", {"off"}}},      {{"inputs", {"tokens"}}, {"words", {"off"}}},
      {{"logits", {"off"}}},     {{"norm", {"on", "batch"}}, {"split", {"off", "pair", "dtensor", "column", "row"}}},
      {{"branch", kEachBranch}}, {{"experts", {"3"}}},
      {{"scalar", {"on"}}},      {{"strided", {"on"}}}};
  for (const When& parallel : {When{{"split", kSplit}}, When{{"words", kSharedWords}}, When{{"logits", kLogits}}}) {
    for (const When& one : plain) {
      const std::optional<When> both = with(parallel, one);
      if (both) to.push_back(cannot_share(*with(*both, what), why));
    }
  }
}

}  // namespace

bool is_tensors(const Case& drawn) { return drawn.at("wrapper") == "tp"; }

void add_tensor_features(std::vector<Feature>& to) {
  add_wrapper(to, "tp", kAlso);
  const Names off_on = {"off", "on"};
  const std::vector<Feature> own = {
      of_tensors("over", {"none", "fsdp2", "hsdp", "replicate", "ddp", "hand"},
                 "who trains the other dimension of the mesh, with other samples: nobody; FSDP2, HSDP, torch's "
                 "replicate() or DDP; the script averages gradients",
                 true),
      of_tensors("shared_by", {"all", "half", "two"},
                 "ranks that share a layer: all of them; half of them; two, also where there are more", true),
      of_tensors("split", {"off", "pair", "dtensor", "column", "row", "sequence"},
                 "blocks: ColwiseParallel and then RowwiseParallel; with a DTensor between them; one of the two only; "
                 "with SequenceParallel"),
      of_tensors("stream", off_on, "each rank has a part of the samples between blocks, too"),
      of_tensors("words", {"off", "rows", "columns"}, "the embedding: RowwiseParallel or ColwiseParallel"),
      of_tensors("logits", {"off", "column", "row", "parallel"},
                 "the head: ColwiseParallel, RowwiseParallel, or ColwiseParallel and loss_parallel()"),
      of_tensors("retied", off_on, "a tied weight is tied again behind parallelize_module()"),
      of_tensors("hidden", {"20", "13"}, "numbers within a block", true),
      of_tensors("clips", {"norm", "value", "total", "meshes"},
                 "how it clips: clip_grad_norm_(); clip_grad_value_(); get_total_norm() and clip_grads_with_norm_(); "
                 "these for the parameters of each mesh",
                 true),
      of_tensors("average", {"off", "foreach", "each"},
                 "a moving average of weights, which are used at the end: by torch._foreach_lerp_(), or one by one",
                 true),
      of_tensors("scattered", {"on", "off"}, "off: parallelize_module(src_data_rank=None)"),
  };
  to.insert(to.end(), own.begin(), own.end());
}

std::vector<Rule> impossible_of_tensors() {
  std::vector<Rule> rules = {
      cannot_share({{"np", {"1"}}}, "One rank shares nothing."),
      cannot_share({{"np", {"2"}}, {"world", {"fewer"}}, {"shared_by", {"half", "two"}}}, "One rank shares nothing."),
      cannot_share({{"precision", {"half"}}}, "It is DeepSpeed's."),
      cannot_share({{"recompute", {"deepspeed", "deepspeed_new"}}}, "It is DeepSpeed's."),
      cannot_share({{"optimizer", {"cpu_adam"}}}, "It is DeepSpeed's."),
      cannot_share({{"gather", {"16bit"}}}, "It is a function of DeepSpeed."),
      cannot_share({{"keeps", {"module"}}}, "It is an option of DeepSpeed."),
      cannot_share({{"keeps", {"weights"}}, {"look", {"state"}}},
                   "get_state_dict() lets an optimizer without a state make a step of zeros (PyTorch #164929)."),
      cannot_share({{"scale", {"spike", "part"}}, {"look", {"state"}}, {"steps", {"2"}}},
                   "get_state_dict() lets an optimizer without a state make a step of zeros (PyTorch #164929)."),
      cannot_share({{"optimizer", {"nadam"}}, {"precision", {"bf16"}}, {"resume", {"on"}}},
                   "load_state_dict() rounds its mu_product to bf16 (PyTorch #43706)."),
      cannot_share({{"branch", {"rank"}}}, "All ranks that share a layer use the same modules."),
      cannot_share({{"optimizer", {"muon"}}, {"precision", {"autocast", "bf16", "fp16"}}},
                   "It makes much of a rounding."),
      cannot_share({{"optimizer", {"muon"}}, {"split", {"pair", "dtensor", "column", "row", "sequence"}}},
                   "It makes much of a rounding, in bf16, and a block's sums have another order."),
      cannot_share({{"optimizer", {"muon"}}, {"frozen", {"body"}}}, "It trains matrices only."),
      cannot_share({{"norm", {"batch"}}, {"split", kSequence}}, "Its numbers are of all samples."),
      cannot_share({{"dropout", {"on"}}, {"split", kSequence}}, "Each rank drops numbers of its own samples."),
      cannot_share({{"stream", {"on"}}, {"normed", {"on"}}}, "The head takes parts of the samples."),
      cannot_share({{"stream", {"on"}}, {"branch", {"step", "late", "early"}}}, "Its gradients would be of a part."),
      cannot_share({{"stream", {"on"}}, {"experts", {"3"}}}, "Its gradients would be of a part."),
      cannot_share({{"stream", {"on"}}, {"scalar", {"on"}}}, "Its gradients would be of a part."),
      cannot_share({{"stream", {"on"}}, {"strided", {"on"}}}, "Its gradients would be of a part."),
      cannot_share({{"stream", {"on"}}, {"scale", {"part"}}}, "Its gradients would be of a part."),
      cannot_share({{"split", kSequence}, {"np", {"4"}}, {"shared_by", {"all"}}},
                   "Four ranks do not divide six samples."),
      cannot_share({{"split", kSequence}, {"world", {"more"}}, {"shared_by", {"all"}}},
                   "Four ranks do not divide six samples."),
      cannot_share({{"normed", {"on"}}, {"logits", {"column", "row", "parallel"}}},
                   "Its weight is made by another module."),
      cannot_share({{"scalar", {"on"}}, {"over", kFullyShard}}, "FSDP takes no parameter without a dimension."),
      cannot_share({{"strided", {"on"}}, {"over", kFullyShard}}, "FSDP2 takes no parameter that is not contiguous."),
      cannot_share({{"shard_last", {"on"}}, {"hidden", {"13"}}},
                   "FSDP2 shards other dimensions than the first evenly only."),
      cannot_share({{"branch", kEachBranch}, {"over", {"ddp"}}, {"find_unused", {"off"}}},
                   "DDP has to look for what a backward pass does not use."),
      cannot_share({{"unused", {"on"}}, {"over", {"ddp"}}, {"find_unused", {"off"}}, {"static_graph", {"off"}}},
                   "DDP has to look for what is not used."),
      cannot_share({{"turned", {"freeze"}}, {"over", {"ddp"}}, {"find_unused", {"off"}}},
                   "DDP has to look for what a backward pass does not use."),
      cannot_share({{"turned", {"thaw"}}, {"over", {"ddp"}}}, "DDP asks what is frozen once, and says so."),
      cannot_share({{"average", {"foreach", "each"}}, {"world", {"fewer", "more"}}}, "It would have to be saved, too."),
      cannot_share({{"average", {"foreach", "each"}}, {"models", {"2"}}}, "It is of one model."),
  };
  const char* const one_mesh = "A norm is of tensors that are spread over the same ranks.";
  const char* const one_kind = "A list is of tensors that are spread over ranks, or of others.";
  const Names without_fsdp = {"none", "hand"};
  add_mixed({{"clip", {"on"}}, {"clips", {"norm", "total"}}, {"over", {"none", "hand", "fsdp2", "hsdp", "replicate"}}},
            one_mesh, rules);
  add_mixed({{"clip", {"on"}}, {"clips", {"value"}}, {"over", without_fsdp}}, one_kind, rules);
  add_mixed({{"optimizer", {"foreach", "fused"}}, {"over", without_fsdp}}, one_kind, rules);
  add_mixed({{"precision", {"fp16"}}, {"over", without_fsdp}}, one_kind, rules);
  add_mixed({{"average", {"foreach"}}, {"over", without_fsdp}}, one_kind, rules);
  return rules;
}

const std::vector<Rule>& expected_of_tensors() {
  const char* const parts = "A sum over ranks that share a layer adds what each of them has added up.";
  static const std::vector<Rule> rules = {
      expects(Grade::rounding, {{"optimizer", {"muon"}}}, "Its update is made orthogonal in bf16."),
      expects(Grade::reassociated, {{"split", kSplit}}, parts),
      expects(Grade::reassociated, {{"logits", kLogits}}, parts),
      expects(Grade::rounding, {{"precision", {"bf16"}}, {"forwards", {"2"}}, {"over", kFullyShard}},
              "Gradients of two forward passes are added in bf16 by FSDP, and in fp32 by hand."),
      expects(Grade::rounding, {{"precision", {"bf16"}}, {"words", {"columns", "rows"}}},
              "add_() of bf16 rounds the last numbers of a tensor otherwise, and a shard ends elsewhere."),
      expects(Grade::rounding,
              {{"precision", {"bf16"}}, {"tied", {"on"}}, {"accumulation", kMoreThanOne}, {"over", kFullyShard}},
              "FSDP2 adds a tied weight's uses in fp32 in all micro-batches but the last one, and by hand each sum is "
              "bf16."),
      expects(Grade::reassociated, {{"recompute", {"reentrant"}}, {"reused", {"on"}}},
              "The recomputed use has a backward pass of its own, whose gradients are added apart."),
      expects(Grade::reassociated, {{"recompute", {"reentrant"}}, {"forwards", {"2"}}},
              "Each recomputed pass has a backward pass of its own, whose gradients are added apart."),
      expects(Grade::reassociated, {{"clip", {"on"}}, {"clips", {"norm", "total", "meshes"}}},
              "The norm of the gradient is summed over other pieces."),
      expects(Grade::reassociated, {{"forwards", {"apart"}}}, "Each backward pass is averaged by itself."),
      expects(Grade::reassociated, {{"sync", {"each"}}}, "Sums over ranks after each micro-batch have another order."),
      expects(Grade::reassociated, {{"accumulation", kMoreThanOne}, {"forwards", {"2"}}, {"over", kFullyShard}},
              "FSDP2 adds the gradients of a micro-batch's two forward passes before those of the micro-batches before "
              "it."),
      expects(Grade::reassociated, {{"accumulation", kMoreThanOne}, {"reused", {"on"}}, {"over", kFullyShard}},
              "FSDP2 adds the gradients of a block's two uses before those of the micro-batches before it."),
      expects(Grade::reassociated, {{"optimizer", {"fused"}}},
              "The fused kernel rounds in vectors otherwise than at a shard's end."),
  };
  return rules;
}

}  // namespace seeksim::harness::torch
