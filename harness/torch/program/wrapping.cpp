// Who distributes a drawn case: DDP, FSDP or DeepSpeed, with the options that were drawn.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <vector>

#include "harness/torch/program/script.h"

namespace seeksim::harness::torch {
namespace {

using Names = std::vector<std::string>;

std::string joined(const Names& words) { return fmt::format("{}", fmt::join(words, ", ")); }

void add_ddp(const Case& drawn, int depth, Lines& to) {
  Names options = ddp_options(drawn);
  options.insert(options.begin(), "model");
  to.add(depth, fmt::format("net = model if PLAIN else nn.parallel.DistributedDataParallel({})", joined(options)));
  add_ddp_hook(drawn, depth, to);
}

std::string mesh_of(const Case& drawn) {
  if (is_tensors(drawn)) return drawn.at("over") == "hsdp" ? "mesh[\"data\", \"shard\"]" : "mesh[\"data\"]";
  if (drawn.at("wrapper") == "fsdp2") return "init_device_mesh(\"cpu\", (dist.get_world_size(),))";
  const bool of_two = drawn.at("replicas") == "2";
  std::string shape = drawn.at("np") == "4" ? "(2, 2)" : of_two ? "(2, 1)" : "(1, 2)";
  if (moves(drawn)) shape = of_two ? "(2, dist.get_world_size() // 2)" : "(dist.get_world_size() // 2, 2)";
  return fmt::format("init_device_mesh(\"cpu\", {}, mesh_dim_names=(\"replicate\", \"shard\"))", shape);
}

std::string strategy_of(const Case& drawn) {
  const std::string& strategy = drawn.at("strategy");
  return strategy == "none" ? "NO_SHARD" : strategy == "hybrid" ? "HYBRID_SHARD" : "SHARD_GRAD_OP";
}

void add_fsdp1(const Case& drawn, int depth, Lines& to) {
  Names options = {"device_id=torch.device(\"cpu\")"};
  options.emplace_back(is_on(drawn, "flat") ? "use_orig_params=False" : "use_orig_params=True");
  if (drawn.at("strategy") != "full")
    options.push_back("sharding_strategy=fsdp.ShardingStrategy." + strategy_of(drawn));
  if (drawn.at("strategy") == "hybrid") options.push_back("device_mesh=" + mesh_of(drawn));
  if (is_on(drawn, "prefetch")) options.emplace_back("forward_prefetch=True");
  if (is_on(drawn, "post")) options.emplace_back("backward_prefetch=fsdp.BackwardPrefetch.BACKWARD_POST");
  if (drawn.at("precision") == "bf16")
    options.emplace_back("mixed_precision=fsdp.MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)");
  to.add(depth, "net = model").add(depth, "if not PLAIN:");
  to.add(++depth, "options = dict(");
  add_words(options, depth + 1, to);
  to.add(depth, ")");
  if (drawn.at("wrap") == "blocks")
    to.add(depth, "for i, block in enumerate(model.blocks):")
        .add(depth + 1, "model.blocks[i] = fsdp.FullyShardedDataParallel(block, **options)");
  if (drawn.at("wrap") == "layers")
    to.add(depth, "for block in model.blocks:")
        .add(depth + 1, "for i, layer in enumerate(block):")
        .add(depth + 2, "if isinstance(layer, nn.Linear):")
        .add(depth + 3, "block[i] = fsdp.FullyShardedDataParallel(layer, **options)");
  to.add_if(other_is_unit(drawn), depth, "model.other = fsdp.FullyShardedDataParallel(model.other, **options)");
  to.add(depth, "net = fsdp.FullyShardedDataParallel(model, **options)");
}

}  // namespace

void add_fsdp2(const Case& drawn, int depth, Lines& to) {
  Names options = {"mesh=" + mesh_of(drawn)};
  if (drawn.at("reshard") != "default")
    options.push_back(fmt::format("reshard_after_forward={}", drawn.at("reshard") == "2" ? "2"
                                                              : is_on(drawn, "reshard")  ? "True"
                                                                                         : "False"));
  if (is_on(drawn, "shard_last")) options.emplace_back("shard_placement_fn=lambda p: Shard(p.dim() - 1)");
  if (is_on(drawn, "on_cpu")) options.emplace_back("offload_policy=fsdp.CPUOffloadPolicy(pin_memory=False)");
  if (drawn.at("precision") == "bf16")
    options.emplace_back("mp_policy=fsdp.MixedPrecisionPolicy(torch.bfloat16, torch.float32)");
  to.add(depth, "options = dict(");
  add_words(options, depth + 1, to);
  to.add(depth, ")");
  if (drawn.at("wrap") == "blocks")
    to.add(depth, "for block in model.blocks:").add(depth + 1, "fsdp.fully_shard(block, **options)");
  if (drawn.at("wrap") == "layers")
    to.add(depth, "for layer in [layer for block in model.blocks for layer in block if isinstance(layer, nn.Linear)]:")
        .add(depth + 1, "fsdp.fully_shard(layer, **options)");
  to.add_if(drawn.at("wrap") == "pair", depth, "fsdp.fully_shard(list(model.blocks), **options)");
  to.add_if(drawn.at("embedding") != "root", depth, "fsdp.fully_shard(model.embed, **options)");
  to.add_if(other_is_unit(drawn), depth, "fsdp.fully_shard(model.other, **options)");
  to.add(depth, "fsdp.fully_shard(model, **options)");
  const std::string& divide = drawn.at("divide");
  to.add_if(divide != "default", depth,
            "for unit in [unit for unit in model.modules() if isinstance(unit, fsdp.FSDPModule)]:");
  to.add_if(divide == "sum" || divide == "both", depth + 1, "unit.set_force_sum_reduction_for_comms(True)");
  to.add_if(
      divide == "factor" || divide == "both", depth + 1,
      fmt::format("unit.set_gradient_divide_factor({})", is_tensors(drawn) ? "mesh.size(0)" : "dist.get_world_size()"));
  if (is_on(drawn, "prefetch") && drawn.at("wrap") == "blocks")
    to.add(depth, "for block, following in zip(model.blocks, model.blocks[1:]):")
        .add(depth + 1, "block.set_modules_to_forward_prefetch([following])");
  add_options_of_fsdp2(drawn, depth, to);
}

void add_words(const Names& words, int depth, Lines& to) {
  constexpr std::size_t kColumns = 100;
  std::string line;
  for (const std::string& word : words) {
    if (!line.empty() && line.size() + word.size() + std::size_t(depth) * 4 + 3 > kColumns) {
      to.add(depth, line);
      line.clear();
    }
    line += (line.empty() ? "" : " ") + word + ',';
  }
  to.add_if(!line.empty(), depth, line);
}

Names ddp_options(const Case& drawn) {
  Names options;
  if (is_on(drawn, "static_graph")) options.emplace_back("static_graph=True");
  if (is_on(drawn, "bucket_view")) options.emplace_back("gradient_as_bucket_view=True");
  if (is_on(drawn, "find_unused")) options.emplace_back("find_unused_parameters=True");
  if (drawn.at("ddp_bucket") == "small") options.emplace_back("bucket_cap_mb=0.0002");
  if (drawn.at("send_buffers") == "off") options.emplace_back("broadcast_buffers=False");
  return options;
}

bool other_is_unit(const Case& drawn) { return drawn.at("branch") != "off" && drawn.at("wrap") != "root"; }

bool is_on(const Case& drawn, const char* name) { return drawn.at(name) == "on"; }
bool is_deepspeed(const Case& drawn) {
  return drawn.at("wrapper").starts_with("zero") || is_pipe(drawn) || is_moe(drawn);
}
bool is_fsdp2(const Case& drawn) {
  const std::string& one = drawn.at(is_tensors(drawn) ? "over" : "wrapper");
  return one == "fsdp2" || one == "hsdp" || one == "replicate";
}
bool has_no_sync(const Case& drawn) {
  const std::string& one = drawn.at(is_tensors(drawn) ? "over" : "wrapper");
  return one == "ddp" || one == "fsdp1";
}
std::string narrow_type(const Case& drawn) {
  return drawn.at("precision") == "half" ? ".half()" : drawn.at("precision") == "bf16" ? ".bfloat16()" : "";
}
bool casts_by_hand(const Case& drawn) {
  const bool is_narrow_itself = drawn.at("wrapper") == "ddp" || (is_tensors(drawn) && !is_fsdp2(drawn));
  return !narrow_type(drawn).empty() && !is_narrow_itself && !is_stages(drawn);
}

void add_wrapping(const Case& drawn, int depth, Lines& to) {
  if (drawn.at("wrapper") == "ddp") return add_ddp(drawn, depth, to);
  if (drawn.at("wrapper") == "fsdp1") return add_fsdp1(drawn, depth, to);
  to.add(depth, "net = model").add(depth, "if not PLAIN:");
  is_tensors(drawn) ? add_tensors(drawn, depth + 1, to) : add_fsdp2(drawn, depth + 1, to);
}

}  // namespace seeksim::harness::torch
