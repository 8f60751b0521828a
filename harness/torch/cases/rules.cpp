// Which features do not go together, and how near a case has to be to the training by hand.
#include <algorithm>

#include "harness/torch/cases/features.h"

namespace seeksim::harness::torch {
namespace {

using Names = std::vector<std::string>;
using When = std::map<std::string, Names>;

const Names kAllTorch = {"ddp", "fsdp1", "fsdp2", "hsdp"};
const Names kSharded = {"fsdp1", "fsdp2", "hsdp", "zero1", "zero2", "zero3"};
const Names kFlat = {"fsdp1", "zero0", "zero1", "zero2", "zero3"};
const Names kDeepSpeed = {"zero0", "zero1", "zero2", "zero3"};
const Names kBranches = {"step", "rank", "late", "early"};
const Names kMore = {"2", "4"};

Rule cannot(When when, std::string why) { return {std::move(when), Grade::bits, std::move(why)}; }

const std::vector<Rule>& impossible_of_others() {
  static const std::vector<Rule> rules = {
      cannot({{"inputs", {"numbers"}}, {"recompute", {"reentrant"}}},
             "Reentrant recomputation takes an input with a gradient."),
      cannot({{"recompute", {"deepspeed", "deepspeed_new"}}, {"wrapper", kAllTorch}}, "It is DeepSpeed's."),
      cannot({{"inputs", {"numbers"}}, {"recompute", {"deepspeed"}}}, "It takes an input with a gradient."),
      cannot({{"frozen", {"body"}}, {"recompute", {"deepspeed"}}}, "It takes an input with a gradient."),
      cannot({{"loader", {"even", "short", "uneven"}}, {"loop", {"accelerate"}}, {"wrapper", kDeepSpeed}},
             "On CPUs each rank of accelerate's DeepSpeed takes itself for the only one: all read the same samples."),
      cannot({{"optimizer", {"cpu_adam"}}, {"wrapper", kAllTorch}}, "It is DeepSpeed's."),
      cannot({{"optimizer", {"cpu_adam"}}, {"wrapper", {"zero0"}}}, "It is for what is offloaded."),
      cannot({{"optimizer", {"cpu_adam"}}, {"offload", {"off"}}}, "It is for what is offloaded."),
      cannot({{"loader", {"short"}}, {"accumulation", {"1"}}}, "A step would lack all of its micro-batches."),
      cannot({{"loader", {"even", "short", "uneven"}}, {"loop", {"accelerate", "fabric"}}, {"resume", {"on"}}},
             "The script would have to say where the loader goes on."),
      cannot({{"loader", {"uneven"}}, {"deals", {"sent"}}}, "accelerate shares out a batch that lacks samples evenly."),
      cannot({{"loader", {"even", "short", "uneven"}}, {"loop", {"lightning"}}, {"epochs", {"1"}}, {"resume", {"on"}}},
             "A loader without a state begins anew, and Lightning says so."),
      cannot({{"loop", {"accelerate"}}, {"wrapper", {"ddp"}}, {"schedule", {"on"}}, {"deals", {"batches", "sent"}}},
             "accelerate's schedule then makes a step for each rank."),
      cannot({{"branch", {"rank"}}, {"wrapper", kFlat}}, "All ranks of FSDP and ZeRO use the same modules."),
      cannot({{"branch", kBranches}, {"wrapper", {"ddp"}}, {"find_unused", {"off"}}},
             "DDP has to look for what a backward pass does not use."),
      cannot({{"branch", kBranches}, {"static_graph", {"on"}}}, "The graph is not static."),
      cannot({{"branch", {"late", "early"}}, {"accumulation", {"1"}}}, "There is one micro-batch only."),
      cannot({{"unused", {"on"}}, {"wrapper", {"ddp"}}, {"find_unused", {"off"}}, {"static_graph", {"off"}}},
             "DDP has to look for what is not used."),
      cannot({{"static_graph", {"on"}}, {"accumulation", kMore}, {"sync", {"last"}}},
             "A static graph does not go with no_sync() in its first step (PyTorch #143580)."),
      cannot({{"experts", {"3"}}, {"precision", {"autocast", "bf16", "fp16", "half"}}},
             "A sample that rounding sends elsewhere says nothing."),
      cannot({{"precision", {"fp16"}}, {"scale", {"grows", "static"}}}, "They are keys of DeepSpeed's own fp16."),
      cannot({{"scale", {"part"}}, {"branch", {"late", "early"}}}, "Its model does not know the step."),
      cannot({{"precision", {"fp16"}}, {"loop", {"accelerate", "fabric", "lightning", "trainer"}}},
             "They want a GPU for it."),
      cannot({{"precision", {"fp16"}}, {"resume", {"on"}}}, "The scale would have to be saved, too."),
      cannot({{"scale", {"spike", "part"}}, {"look", {"state"}}, {"steps", {"2"}}, {"wrapper", kAllTorch}},
             "get_state_dict() lets an optimizer without a state make a step of zeros (PyTorch #164929)."),
      cannot({{"precision", {"autocast"}}, {"wrapper", kDeepSpeed}, {"loop", {"accelerate", "trainer"}}},
             "They turn it into DeepSpeed's own bf16."),
      cannot({{"flat", {"on"}}, {"optimizer", {"groups"}}}, "A flat parameter is in one group."),
      cannot({{"flat", {"on"}}, {"frozen", {"bias"}}}, "A flat parameter is frozen as a whole."),
      cannot({{"flat", {"on"}}, {"frozen", {"block"}}, {"wrap", {"root"}}}, "A flat parameter is frozen as a whole."),
      cannot({{"flat", {"on"}}, {"turned", {"freeze", "thaw"}}, {"wrap", {"root", "pair"}}},
             "A flat parameter is frozen as a whole."),
      cannot({{"flat", {"on"}}, {"frozen", {"block"}}, {"wrap", {"layers"}}, {"norm", {"on"}}},
             "A flat parameter is frozen as a whole."),
      cannot({{"replicas", {"2"}}, {"shard_last", {"on"}}}, "There is one shard only."),
      cannot({{"scalar", {"on"}}, {"wrapper", {"fsdp1", "fsdp2", "hsdp"}}},
             "FSDP takes no parameter without a dimension."),
      cannot({{"strided", {"on"}}, {"wrapper", {"fsdp2", "hsdp"}}}, "FSDP2 takes no parameter that is not contiguous."),
      cannot({{"shard_last", {"on"}}, {"normed", {"on"}}}, "FSDP2 shards other dimensions than the first evenly only."),
      cannot({{"shard_last", {"on"}}, {"width", {"13"}}}, "FSDP2 shards other dimensions than the first evenly only."),
      cannot({{"prescale", {"on"}}, {"wrapper", {"zero2", "zero3"}}, {"reduce_scatter", {"true"}}},
             "DeepSpeed does not prescale what it scatters."),
      cannot({{"zero_init", {"on"}}, {"precision", {"bf16"}}},
             "zero.Init draws the first weights in bf16, which are other random numbers."),
      cannot({{"zero_init", {"on"}}, {"precision", {"half"}}},
             "zero.Init draws the first weights in fp16, which are other random numbers."),
      cannot({{"precision", {"half"}}, {"wrapper", kAllTorch}}, "It is DeepSpeed's."),
      cannot({{"precision", {"half"}}, {"loop", {"accelerate", "trainer"}}}, "accelerate wants a GPU for it."),
      cannot({{"precision", {"half"}}, {"world", {"fewer", "more"}}}, "The scale would have to be saved, too."),
      cannot({{"precision", {"half"}}, {"scale", {"grows", "spike", "part"}}, {"keeps", {"weights", "module"}}},
             "The scale is not kept."),
      cannot({{"strided", {"on"}}, {"state", {"rank0", "rank0_both"}}},
             "What is not contiguous is sent as it lies in memory (set-state-dict-strided)."),
      cannot({{"precision", {"half"}}, {"added_as", {"bf16"}}}, "Nobody mixes the two."),
      cannot({{"turned", {"freeze", "thaw"}}, {"wrapper", {"ddp"}}, {"find_unused", {"off"}}},
             "DDP has to look for what a backward pass does not use."),
      cannot({{"turned", {"freeze", "thaw"}}, {"static_graph", {"on"}}}, "The graph is not static."),
      cannot({{"turned", {"thaw"}}, {"wrapper", {"ddp"}}}, "DDP asks what is frozen once, and says so."),
      cannot({{"turned", {"freeze", "thaw"}}, {"zeros", {"on"}}}, "A gradient of zero is an update with momentum."),
      cannot({{"turned", {"freeze"}}, {"ignore_unused", {"false"}}}, "It says that there is none."),
      cannot({{"turned", {"thaw"}}, {"optimizer", {"groups"}}}, "The optimizer would not have the block."),
      cannot({{"edit", {"on"}}, {"wrapper", {"zero0"}}}, "DeepSpeed's functions are for ZeRO 1 to 3."),
      cannot({{"edit", {"moment"}}, {"wrapper", {"zero0", "fsdp1"}}}, "The script cannot reach it."),
      cannot({{"edit", {"moment"}}, {"optimizer", {"adagrad", "asgd", "muon"}}}, "There is none, or not for a bias."),
      cannot({{"edit", {"moment"}}, {"keeps", {"weights", "module"}}}, "There is none then."),
      cannot({{"edit", {"moment"}}, {"scale", {"spike", "part"}}, {"steps", {"2"}}}, "There is none then."),
      cannot({{"edit", {"gradient"}}, {"flat", {"on"}}}, "A flat parameter has one gradient."),
      cannot({{"edit", {"on", "gradient", "moment"}}, {"wrapper", {"zero3"}}, {"frozen", {"block", "body"}}},
             "It is frozen."),
      cannot({{"edit", {"on", "gradient", "moment"}}, {"wrapper", {"zero3"}}, {"turned", {"freeze", "thaw"}}},
             "It is frozen."),
      cannot({{"loop", {"fabric", "lightning"}}, {"wrapper", kDeepSpeed}}, "Lightning's DeepSpeed wants a GPU."),
      cannot({{"loop", {"lightning", "trainer"}}, {"dropout", {"on"}}}, "They draw random numbers of their own."),
      cannot(
          {{"loop", {"accelerate"}}, {"wrapper", kDeepSpeed}, {"dropout", {"on"}}, {"resume", {"on"}}},
          "On CPUs each rank of accelerate's DeepSpeed takes itself for the only one: they write random numbers into "
          "one file."),
      cannot({{"loop", {"fabric", "lightning"}}, {"precision", {"bf16"}}, {"buffer", {"on"}}},
             "They make bf16 the default, which is what a counter times a number then is."),
      cannot({{"loop", {"fabric"}}, {"precision", {"autocast"}}, {"inputs", {"numbers"}}},
             "Fabric casts inputs to bf16, too."),
      cannot({{"loop", {"trainer"}}, {"bucket_view", {"on"}}}, "It has no such option."),
      cannot({{"loop", {"trainer"}}, {"ddp_bucket", {"small"}}}, "Its option takes whole megabytes."),
      cannot({{"np", {"1"}}, {"wrapper", {"hsdp"}}}, "One rank has no replica and no shard."),
      cannot({{"np", {"1"}}, {"world", {"fewer"}}}, "No ranks train nothing."),
      cannot({{"np", {"4"}}, {"world", {"more"}}}, "Eight ranks take long."),
      cannot({{"np", {"2"}}, {"world", {"fewer"}}, {"wrapper", {"hsdp"}}}, "One rank has no replica and no shard."),
      cannot({{"np", {"2"}}, {"world", {"fewer"}}, {"strategy", {"hybrid"}}}, "One rank has no replica and no shard."),
      cannot({{"np", {"2"}}, {"world", {"fewer"}}, {"secondary", {"2"}}}, "One rank has no neighbour."),
      cannot({{"added_as", {"fp32"}}, {"wrapper", {"zero0"}}}, "DeepSpeed has no such mix at stage 0."),
      cannot({{"compute_norm", {"false"}}, {"added_as", {"fp32"}}, {"wrapper", {"zero1"}}},
             "DeepSpeed needs the norm for it."),
      cannot({{"compute_norm", {"false"}}, {"offload", {"on"}}}, "DeepSpeed needs the norm for it."),
      cannot({{"edit", {"on", "gradient", "moment"}}, {"frozen", {"bias"}}}, "It is frozen."),
      cannot({{"gather", {"16bit"}}, {"wrapper", kAllTorch}}, "It is a function of DeepSpeed."),
      cannot({{"accumulates", {"coalesced"}}, {"wrapper", {"zero0"}}}, "It is for ZeRO 1 to 3."),
      cannot({{"accumulates", {"coalesced"}}, {"scaled_by", {"script"}}}, "It is always the script then."),
      cannot({{"accumulates", {"unmanaged"}}, {"wrapper", {"zero1", "zero3"}}, {"overlap", {"true"}}},
             "It is for ZeRO 2."),
      cannot({{"backward", {"tensor"}}, {"scaled_by", {"script"}}}, "It is always the engine then."),
      cannot({{"tied", {"on"}}, {"normed", {"on"}}}, "There is one weight for both."),
      cannot({{"frozen", {"body"}}, {"optimizer", {"groups"}}}, "One group would be empty."),
      cannot({{"frozen", {"body"}}, {"flat", {"on"}}}, "A flat parameter is frozen as a whole."),
      cannot({{"frozen", {"body"}}, {"recompute", {"reentrant"}}},
             "Reentrant recomputation takes an input with a gradient."),
      cannot({{"world", {"fewer", "more"}},
              {"wrapper", {"zero1", "zero2", "zero3"}},
              {"optimizer", {"sgd", "amsgrad", "adagrad", "nadam", "rmsprop", "asgd", "muon"}}},
             "Universal checkpoints hold the two moments of Adam, and no other state."),
      cannot({{"optimizer", {"muon"}}, {"wrapper", kAllTorch}}, "It is DeepSpeed's."),
      cannot({{"optimizer", {"muon"}}, {"loop", {"accelerate", "trainer"}}}, "DeepSpeed has to make it."),
      cannot({{"optimizer", {"muon"}}, {"compile", {"whole", "blocks"}}}, "Its own kernels take long to compile."),
      cannot({{"optimizer", {"muon"}}, {"schedule", {"on"}}}, "DeepSpeed has to make it."),
      cannot({{"ratio", {"0.5"}}, {"dropout", {"on"}}}, "ZeRO 3 draws a random number for it, and masks are others."),
      cannot({{"ratio", {"0.5"}}, {"buffer", {"on"}}}, "ZeRO 3 draws a random number for it."),
      cannot({{"optimizer", {"muon"}}, {"precision", {"autocast", "bf16", "fp16", "half"}}},
             "It makes much of a rounding."),
      cannot({{"optimizer", {"muon"}}, {"clip", {"on"}}}, "ZeRO clips its update, not the gradient (#8439)."),
      cannot({{"optimizer", {"muon"}}, {"wrapper", {"zero3"}}, {"reduce_scatter", {"true"}}}, "DeepSpeed refuses it."),
      cannot({{"forwards", {"apart"}}, {"wrapper", kDeepSpeed}}, "A backward pass of DeepSpeed is a micro-batch."),
      cannot({{"forwards", {"apart"}}, {"loop", {"accelerate", "fabric", "lightning", "trainer"}}},
             "They have one backward pass for a micro-batch."),
      cannot({{"keeps", {"weights"}}, {"look", {"state"}}, {"wrapper", kAllTorch}},
             "get_state_dict() lets an optimizer without a state make a step of zeros (PyTorch #164929)."),
      cannot({{"keeps", {"module"}}, {"wrapper", kAllTorch}}, "It is an option of DeepSpeed."),
      cannot({{"norm", {"batch"}}, {"precision", {"bf16", "half"}}},
             "FSDP1 keeps such layers in fp32, and others do not."),
      cannot({{"norm", {"batch"}}, {"flat", {"on"}}, {"frozen", {"block"}}, {"wrap", {"layers"}}},
             "A flat parameter is frozen as a whole."),
      cannot({{"hook", {"weight"}}, {"frozen", {"bias"}}}, "It is frozen."),
      cannot({{"np", {"1"}}, {"strategy", {"hybrid"}}}, "One rank has no replica and no shard."),
      cannot({{"np", {"1"}}, {"secondary", {"2"}}}, "One rank has no neighbour."),
      cannot({{"own_seeds", {"on"}}, {"dropout", {"on"}}}, "What is dropped comes from the same random numbers."),
      cannot({{"own_seeds", {"on"}}, {"send_buffers", {"off"}}}, "Nobody sends the buffers then."),
      cannot({{"ignore_unused", {"false"}}, {"unused", {"on"}}}, "It says that there is none."),
      cannot({{"ignore_unused", {"false"}}, {"branch", kBranches}}, "It says that there is none."),
  };
  return rules;
}

}  // namespace

const std::vector<Rule>& impossible() {
  static const std::vector<Rule> all = [] {
    std::vector<Rule> rules = impossible_of_others();
    for (const std::vector<Rule>& more : {impossible_of_torch_options(), impossible_of_pipe(), impossible_of_tensors(),
                                          impossible_of_stages(), impossible_of_moe()})
      rules.insert(rules.end(), more.begin(), more.end());
    return rules;
  }();
  return all;
}

Rule expected_of(const Case& drawn) {
  static const std::vector<Rule> of_others = {
      {{{"precision", {"half"}}},
       Grade::rounding,
       "DeepSpeed sums fp16 gradients, and rounds them at places of its own."},
      {{{"precision", {"bf16", "autocast", "fp16"}}, {"wrapper", kDeepSpeed}},
       Grade::rounding,
       "DeepSpeed sums bf16 or fp16 gradients, and rounds them at places of its own."},
      {{{"precision", {"bf16"}}, {"forwards", {"2"}}},
       Grade::rounding,
       "Gradients of two forward passes are added in bf16 by FSDP, and in fp32 by hand."},
      {{{"precision", {"autocast"}}, {"loop", {"fabric", "lightning"}}, {"reused", {"on"}}},
       Grade::rounding,
       "Lightning casts weights anew for each use, so that gradients are added in fp32; by hand it is one cast."},
      {{{"precision", {"autocast", "fp16"}}, {"wrapper", {"fsdp1"}}, {"reused", {"on"}}},
       Grade::rounding,
       "Autocast casts a weight once for all its uses, and FSDP1's views of weights for each: bf16 sums, or fp32."},
      {{{"precision", {"autocast", "fp16"}}, {"wrapper", {"fsdp1"}}, {"forwards", {"2"}}},
       Grade::rounding,
       "Autocast casts a weight once for all its uses, and FSDP1's views of weights for each: bf16 sums, or fp32."},
      {{{"precision", {"autocast"}}, {"loop", {"accelerate", "fabric", "lightning", "trainer"}}, {"forwards", {"2"}}},
       Grade::rounding,
       "They cast weights anew for each forward pass, so that gradients are added in fp32; by hand it is one cast, and "
       "bf16."},
      {{{"precision", {"bf16"}}, {"wrapper", {"fsdp1"}}, {"accumulation", kMore}},
       Grade::rounding,
       "FSDP1 adds gradients of micro-batches in bf16 under no_sync(), and the training by hand in fp32."},
      {{{"precision", {"bf16"}}, {"tied", {"on"}}, {"accumulation", kMore}, {"wrapper", {"fsdp2", "hsdp"}}},
       Grade::rounding,
       "FSDP2 adds a tied weight's uses in fp32 in all micro-batches but the last one, and by hand each sum is bf16."},
      {{{"recompute", {"reentrant", "deepspeed"}}, {"reused", {"on"}}},
       Grade::reassociated,
       "The recomputed use has a backward pass of its own, whose gradients are added apart."},
      {{{"recompute", {"reentrant", "deepspeed"}}, {"forwards", {"2"}}},
       Grade::reassociated,
       "Each recomputed pass has a backward pass of its own, whose gradients are added apart."},
      {{{"clip", {"on"}}}, Grade::reassociated, "The norm of the gradient is summed over other pieces."},
      {{{"forwards", {"apart"}}}, Grade::reassociated, "Each backward pass is averaged by itself."},
      {{{"sparse", {"on"}}, {"precision", {"bf16"}}},
       Grade::rounding,
       "Rows of a sparse gradient are added in bf16, one after the other; by hand each rank adds its own first."},
      {{{"sparse", {"on"}}, {"accumulation", kMore}},
       Grade::reassociated,
       "Rows of a sparse gradient are added one after the other, over all micro-batches."},
      {{{"sparse", {"on"}}, {"optimizer", {"adagrad"}}},
       Grade::reassociated,
       "Adagrad of a sparse gradient divides and multiplies apart, and that of a dense one in one kernel."},
      {{{"sparse", {"on"}}, {"wrapper", {"zero0"}}},
       Grade::reassociated,
       "DeepSpeed adds up rows that it gathered, one after the other."},
      {{{"optimizer", {"muon"}}}, Grade::reassociated, "It makes much of a last bit."},
      {{{"optimizer", {"cpu_adam"}}}, Grade::reassociated, "Its kernel rounds in vectors."},
      {{{"sync", {"each"}}}, Grade::reassociated, "Sums over ranks after each micro-batch have another order."},
      {{{"accumulation", kMore}, {"forwards", {"2"}}, {"wrapper", {"fsdp2", "hsdp"}}},
       Grade::reassociated,
       "FSDP2 adds the gradients of a micro-batch's two forward passes before those of the micro-batches before it."},
      {{{"accumulation", kMore}, {"reused", {"on"}}, {"wrapper", {"fsdp2", "hsdp"}}},
       Grade::reassociated,
       "FSDP2 adds the gradients of a block's two uses before those of the micro-batches before it."},
      {{{"forwards", {"2"}}, {"tied", {"on"}}, {"wrapper", {"fsdp1"}}},
       Grade::reassociated,
       "FSDP1 adds the gradients of a tied weight's uses within each forward pass before those of the other."},
      {{{"forwards", {"2"}}, {"reused", {"on"}}, {"wrapper", {"fsdp1"}}},
       Grade::reassociated,
       "FSDP1 adds the gradients of a block's uses within each forward pass before those of the other."},
      {{{"accumulation", kMore}, {"wrapper", {"zero2", "zero3"}}},
       Grade::reassociated,
       "ZeRO 2 and 3 sum over ranks after each micro-batch."},
      {{{"optimizer", {"fused"}}, {"wrapper", kSharded}},
       Grade::reassociated,
       "The fused kernel rounds in vectors otherwise than at a shard's end."},
      {{{"experts", {"3"}}, {"wrapper", {"zero1", "zero2", "zero3"}}, {"aligned", {"false"}}},
       Grade::reassociated,
       "Weights lie unaligned in a flat buffer, where a small product of matrices rounds otherwise."},
      {{{"ds_linear", {"true"}}}, Grade::reassociated, "DeepSpeed's linear layer multiplies in another shape."},
  };
  const std::vector<Rule>& rules = is_pipe(drawn)      ? expected_of_pipe()
                                   : is_tensors(drawn) ? expected_of_tensors()
                                   : is_stages(drawn)  ? expected_of_stages()
                                   : is_moe(drawn)     ? expected_of_moe()
                                                       : of_others;
  const auto found = std::find_if(rules.begin(), rules.end(), [&](const Rule& rule) { return rule.covers(drawn); });
  Rule rule = found == rules.end() ? Rule() : *found;
  const std::string& precision = drawn.at("precision");
  if (rule.grade == Grade::reassociated && precision != "fp32") {
    rule.grade = Grade::rounding;
    rule.why += " A weight that differs in its last bit can be another number in bf16.";
  }
  return rule;
}

}  // namespace seeksim::harness::torch
