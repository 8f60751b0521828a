// Options of DDP and FSDP that take lines of their own.
#include <fmt/format.h>

#include "harness/torch/program/script.h"

namespace seeksim::harness::torch {
namespace {

// The function that DDP calls, and what it is given beside a bucket.
std::string hook_of(const Case& drawn) {
  const std::string& hook = drawn.at("ddp_hook");
  return hook == "on" ? "allreduce_hook" : hook == "power" ? "powerSGD_hook" : hook + "_compress_hook";
}

}  // namespace

void add_imports_of_options(const Case& drawn, Lines& to) {
  const std::string hooks = "from torch.distributed.algorithms.ddp_comm_hooks.", &hook = drawn.at("ddp_hook");
  if (hook == "power")
    to.add(0, hooks + "powerSGD_hook import PowerSGDState, powerSGD_hook");
  else if (hook != "off")
    to.add(0, hooks + "default_hooks import " + hook_of(drawn));
  if (is_on(drawn, "local_sgd"))
    to.add(0, hooks + "post_localSGD_hook import PostLocalSGDState, post_localSGD_hook")
        .add(0, "from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager")
        .add(0, "from torch.distributed.optim import PostLocalSGDOptimizer");
}

void add_ddp_hook(const Case& drawn, int depth, Lines& to) {
  const std::string& hook = drawn.at("ddp_hook");
  if (hook == "off" && !is_on(drawn, "local_sgd")) return;
  const std::string state = is_on(drawn, "local_sgd") ? "PostLocalSGDState(None, None, 0, False)"
                            : hook == "power"         ? "PowerSGDState(None, start_powerSGD_iter=1000)"
                                                      : "None";
  to.add(depth, "if not PLAIN:");
  to.add(depth + 1, fmt::format("net.register_comm_hook({}, {})", state,
                                is_on(drawn, "local_sgd") ? "post_localSGD_hook" : hook_of(drawn)));
}

void add_local_optimizer(int depth, Lines& to) {
  to.add(depth, "if not PLAIN:");
  to.add(depth + 1, "optimizer = PostLocalSGDOptimizer(optimizer, PeriodicModelAverager(2))");
}

void add_local_average(Lines& to) {
  to.add(1, "if PLAIN and step % 2 == 0:").add(2, "for p in model.parameters():");
  to.add(3, "dist.all_reduce(p.data)").add(3, "p.data /= dist.get_world_size()");
}

void add_options_of_fsdp2(const Case& drawn, int depth, Lines& to) {
  to.add_if(drawn.at("embedding") == "light", depth, "model.embed.set_unshard_in_backward(False)");
  to.add_if(drawn.at("finalize") != "auto", depth, "model.set_manual_backward_finalization(True)");
  to.add_if(is_on(drawn, "reduce_unused"), depth, "model.set_reduce_scatter_unused_params(True)");
  to.add_if(drawn.at("storage") == "kept", depth, "model.set_keep_unsharded_storage(True)");
  if (drawn.at("comms") == "apart")
    to.add(depth, "model.set_separate_reduce_scatter_group(True)")
        .add(depth, "model.set_reduce_scatter_max_input_buffers(2)");
}

void add_options_of_micro_batch(const Case& drawn, int depth, Lines& to) {
  const int last = std::stoi(drawn.at("accumulation")) - 1;
  if (last > 0 && is_on(drawn, "keep"))
    to.add(depth, "if not PLAIN:").add(depth + 1, fmt::format("net.set_reshard_after_backward(micro == {})", last));
  if (drawn.at("unshard") == "ahead")
    to.add(depth, "for unit in [] if PLAIN else [one for one in model.modules() if isinstance(one, fsdp.FSDPModule)]:")
        .add(depth + 1, "unit.unshard(async_op=True)");
  if (drawn.at("all_reduce") == "last")
    to.add(depth, "if not PLAIN:").add(depth + 1, fmt::format("net.set_requires_all_reduce(micro == {})", last));
}

void add_finalization(const Case& drawn, Lines& to) {
  if (drawn.at("finalize") == "auto") return;
  to.add(1, "if not PLAIN:");
  to.add(2,
         drawn.at("finalize") == "async" ? "net.finalize_backward(async_op=True).wait()" : "net.finalize_backward()");
}

std::string compressed_type(const Case& drawn) {
  const std::string& hook = drawn.at("ddp_hook");
  return hook == "fp16" ? "float16" : hook == "bf16" ? "bfloat16" : "";
}

}  // namespace seeksim::harness::torch
