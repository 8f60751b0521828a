// Options of DDP and FSDP that are drawn, what of them does not go together, and what a case with them is held to.
#include "harness/torch/cases/features.h"

namespace seeksim::harness::torch {
namespace {

using Names = std::vector<std::string>;
using When = std::map<std::string, Names>;

const Names kOfDdp = {"ddp"};
const Names kOfFsdp2 = {"fsdp2", "hsdp"};
const Names kByTorch = {"ddp", "fsdp1", "fsdp2", "hsdp"};
const Names kMicroBatches = {"2", "4"};

Feature of_option(std::string name, Names values, Names wrappers, std::string description) {
  return {std::move(name), std::move(values), std::move(wrappers), false, "", std::move(description)};
}
Rule cannot_option(When when, std::string why) { return {std::move(when), Grade::bits, std::move(why)}; }

}  // namespace

std::vector<Feature> torch_options() {
  const Names off_on = {"off", "on"};
  return {
      of_option("static_graph", off_on, {"ddp"}, "DDP's static_graph"),
      of_option("bucket_view", off_on, {"ddp"}, "DDP's gradient_as_bucket_view"),
      of_option("ddp_bucket", {"default", "small"}, {"ddp"}, "DDP's bucket_cap_mb"),
      of_option("find_unused", off_on, {"ddp"}, "DDP's find_unused_parameters"),
      of_option("redundancy", {"off", "on", "view"}, kOfDdp,
                "torch's ZeroRedundancyOptimizer; with parameters_as_bucket_view"),
      of_option("ddp_hook", {"off", "on", "power", "fp16", "bf16"}, kOfDdp,
                "DDP's communication hook: one that calls all_reduce(); powerSGD before it starts; fp16_compress_hook, "
                "bf16_compress_hook, which by hand is a sum in that type"),
      {"local_sgd", off_on, kOfDdp, true, "",
       "post-local SGD: PostLocalSGDOptimizer averages the weights of ranks behind each second step, not gradients"},
      of_option("send_buffers", {"on", "off"}, {"ddp"}, "DDP's broadcast_buffers"),
      of_option("strategy", {"full", "grad_op", "none", "hybrid"}, {"fsdp1"}, "FSDP1's sharding_strategy"),
      of_option("flat", off_on, {"fsdp1"}, "FSDP1 without use_orig_params"),
      of_option("wrap", {"blocks", "root", "layers", "pair"}, {"fsdp1", "fsdp2", "hsdp"},
                "what is a unit of FSDP; pair: fully_shard() of all blocks in one call"),
      of_option("prefetch", off_on, {"fsdp1", "fsdp2", "hsdp"}, "FSDP's forward prefetching"),
      of_option("post", off_on, {"fsdp1"}, "FSDP1's backward_prefetch after the gradients"),
      of_option("reshard", {"default", "off", "on", "2"}, kOfFsdp2,
                "FSDP2's reshard_after_forward; 2: to so many ranks"),
      of_option("shard_last", off_on, {"fsdp2", "hsdp"}, "FSDP2 shards matrices by their last dimension"),
      of_option("on_cpu", off_on, {"fsdp2", "hsdp"}, "FSDP2's offload to the CPU"),
      of_option("divide", {"default", "factor", "sum", "both"}, kOfFsdp2,
                "FSDP2's set_gradient_divide_factor(), or set_force_sum_reduction_for_comms(), or both"),
      of_option("replicas", {"1", "2"}, {"hsdp", "fsdp1"}, "of HSDP, on two ranks"),
      of_option("keep", off_on, {"fsdp2", "hsdp"}, "FSDP2's set_reshard_after_backward() between micro-batches"),
      of_option("all_reduce", {"each", "last"}, {"hsdp"}, "set_requires_all_reduce() of HSDP between micro-batches"),
      of_option("finalize", {"auto", "hand", "async"}, kOfFsdp2,
                "FSDP2's set_manual_backward_finalization(), and finalize_backward() behind the last backward pass"),
      of_option("unshard", {"auto", "ahead"}, kOfFsdp2,
                "FSDP2's unshard(async_op=True) of each unit before a forward pass"),
      of_option("reduce_unused", off_on, kOfFsdp2, "FSDP2's set_reduce_scatter_unused_params()"),
      of_option("embedding", {"root", "unit", "light"}, kOfFsdp2,
                "the embedding is a unit of its own; light: with set_unshard_in_backward(False)"),
      of_option("storage", {"freed", "kept"}, kOfFsdp2, "FSDP2's set_keep_unsharded_storage()"),
      of_option("comms", {"default", "apart"}, kOfFsdp2,
                "FSDP2's set_separate_reduce_scatter_group(), and several buffers of it"),
      of_option(
          "evaluated", {"first", "amid", "late"}, kByTorch,
          "where a step's pass in eval mode is: before the others; behind its first micro-batch; between its last "
          "backward pass and the optimizer's step"),
      {"clip_by", {"2", "1", "inf", "value"}, kByTorch, true, "", "the norm that is clipped; or clip_grad_value_()"},
  };
}

std::vector<Need> needs_of_torch_options() {
  return {
      {"keep", "accumulation", {"2", "4"}},
      {"keep", "loop", {"own"}},
      {"redundancy", "loop", {"own"}},
      {"ddp_hook", "loop", {"own"}},
      {"send_buffers", "buffer", {"on"}},
      {"replicas", "np", {"2"}},
      {"replicas", "strategy", {"hybrid"}, "fsdp1"},
      {"local_sgd", "loop", {"own"}},
      {"embedding", "inputs", {"tokens"}},
      {"embedding", "wrap", {"blocks"}},
      {"embedding", "tied", {"off"}},
      {"evaluated", "evaluate", {"on"}},
      {"evaluated", "loop", {"own"}},
      {"clip_by", "clip", {"on"}},
      {"clip_by", "loop", {"own"}},
      {"all_reduce", "accumulation", {"2", "4"}},
      {"all_reduce", "sync", {"each"}},
  };
}

std::vector<Rule> impossible_of_torch_options() {
  const Names by_hand = {"hand", "async"}, units = {"blocks", "layers", "pair"};
  const Names by_call = {"default", "whole", "rank0", "rank0_both", "flat"};
  return {
      cannot_option({{"redundancy", {"on", "view"}}, {"resume", {"on"}}, {"state", by_call}},
                    "Its state has to be gathered by a call of its own."),
      cannot_option({{"redundancy", {"on", "view"}}, {"look", {"state"}}},
                    "Its state has to be gathered by a call of its own."),
      cannot_option({{"redundancy", {"on", "view"}}, {"edit", {"moment"}}}, "The script cannot reach it."),
      cannot_option({{"redundancy", {"on", "view"}}, {"precision", {"fp16"}}, {"optimizer", {"fused"}}},
                    "The fused kernel leaves out a step by itself, so that others are counted."),
      cannot_option({{"ddp_hook", {"fp16", "bf16"}}, {"sync", {"each"}}, {"accumulation", kMicroBatches}},
                    "Each micro-batch is rounded by itself."),
      cannot_option({{"ddp_hook", {"fp16", "bf16"}}, {"forwards", {"apart"}}},
                    "Each backward pass is rounded by itself."),
      cannot_option({{"ddp_hook", {"power", "fp16", "bf16"}}, {"sparse", {"on"}}}, "They are for dense gradients."),
      cannot_option({{"local_sgd", {"on"}}, {"ddp_hook", {"on", "power", "fp16", "bf16"}}},
                    "It has a hook of its own."),
      cannot_option({{"local_sgd", {"on"}}, {"redundancy", {"on", "view"}}}, "It keeps the weights of ranks the same."),
      cannot_option({{"local_sgd", {"on"}}, {"sparse", {"on"}}}, "Its hook is for dense gradients."),
      cannot_option({{"local_sgd", {"on"}}, {"precision", {"fp16"}}}, "Each rank would leave out other steps."),
      cannot_option({{"local_sgd", {"on"}}, {"resume", {"on"}}, {"state", by_call}}, "Its state has a key of its own."),
      cannot_option({{"local_sgd", {"on"}}, {"resume", {"on"}}, {"keeps", {"weights"}}},
                    "Its steps would be counted anew."),
      cannot_option({{"local_sgd", {"on"}}, {"look", {"state"}}}, "Its state has a key of its own."),
      cannot_option({{"wrap", {"pair"}}, {"wrapper", {"fsdp1"}}}, "It is a call of FSDP2."),
      cannot_option({{"wrap", {"pair"}}, {"depth", {"1"}}}, "There is one block only."),
      cannot_option({{"reshard", {"2"}}, {"wrapper", {"hsdp", "tp", "stages"}}}, "A shard has two ranks, or one."),
      cannot_option({{"reshard", {"2"}}, {"np", {"1", "2"}}}, "It takes more ranks than two."),
      cannot_option({{"reshard", {"2"}}, {"shard_last", {"on"}}}, "What it keeps is cut by the first dimension."),
      cannot_option({{"finalize", by_hand}, {"forwards", {"apart"}}}, "Only the last backward pass may reduce."),
      cannot_option({{"finalize", by_hand}, {"sync", {"each"}}, {"accumulation", kMicroBatches}},
                    "Only the last backward pass may reduce."),
      cannot_option({{"branch", {"rank"}}, {"wrapper", kOfFsdp2}, {"reduce_unused", {"off"}}},
                    "All ranks of FSDP use the same modules."),
      cannot_option({{"branch", {"step", "rank", "late", "early"}}, {"reduce_unused", {"on"}}, {"wrap", units}},
                    "A unit that no step used yet has no gradient to fill."),
      cannot_option({{"evaluated", {"amid"}}, {"accumulation", {"1"}}}, "There is one micro-batch only."),
  };
}

}  // namespace seeksim::harness::torch
