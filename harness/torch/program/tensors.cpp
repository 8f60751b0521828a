// A drawn case with tensor parallel layers: which ranks share a layer, how, and who trains on other samples beside
// them.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>

#include "harness/torch/program/script.h"

namespace seeksim::harness::torch {
namespace {

using Names = std::vector<std::string>;
using Plan = std::vector<std::pair<std::string, std::string>>;  // of modules, their styles

bool is_stream(const Case& drawn) { return is_on(drawn, "stream"); }

void add_blocks(const Case& drawn, Plan& to) {
  const std::string& split = drawn.at("split");
  const bool has_norm = drawn.at("norm") != "off";
  const std::string up = fmt::format("blocks.*.{}", int(has_norm)), down = fmt::format("blocks.*.{}", 2 + has_norm);
  if (split == "pair" || split == "dtensor") {
    to.emplace_back(up, split == "pair" ? "ColwiseParallel()" : "ColwiseParallel(use_local_output=False)");
    to.emplace_back(down, "RowwiseParallel()");
  } else if (split == "column" || split == "row") {
    for (const std::string& one : {up, down})
      to.emplace_back(one, split == "row" ? "RowwiseParallel(input_layouts=Replicate())"
                                          : "ColwiseParallel(output_layouts=Replicate())");
  } else if (split == "sequence") {
    if (!is_stream(drawn))
      to.emplace_back("blocks.*",
                      "PrepareModuleInputOutput(\n"
                      "        input_layouts=Replicate(), desired_input_layouts=Shard(0),\n"
                      "        output_layouts=Shard(0), desired_output_layouts=Replicate(),\n    )");
    if (has_norm) to.emplace_back("blocks.*.0", "SequenceParallel(sequence_dim=0)");
    to.emplace_back(up, "ColwiseParallel(input_layouts=Shard(0))");
    to.emplace_back(down, is_stream(drawn) ? "RowwiseParallel(output_layouts=Shard(0))"
                                           : "RowwiseParallel(output_layouts=Shard(0), use_local_output=False)");
  }
}

Plan plan_of(const Case& drawn) {
  Plan plan;
  const std::string& words = drawn.at("words");
  const std::string& logits = drawn.at("logits");
  const char* const out = is_stream(drawn) ? "Shard(0)" : "Replicate()";
  if (words == "rows")
    plan.emplace_back("embed", fmt::format("RowwiseParallel(input_layouts=Replicate(){})",
                                           is_stream(drawn) ? ", output_layouts=Shard(0)" : ""));
  if (words == "columns") plan.emplace_back("embed", fmt::format("ColwiseParallel(output_layouts={})", out));
  add_blocks(drawn, plan);
  const std::string in = is_stream(drawn) ? "input_layouts=Shard(0), " : "";
  if (logits == "column") plan.emplace_back("head", fmt::format("ColwiseParallel({}output_layouts=Replicate())", in));
  if (logits == "row") plan.emplace_back("head", fmt::format("RowwiseParallel(input_layouts={})", out));
  if (logits == "parallel") plan.emplace_back("head", fmt::format("ColwiseParallel({}use_local_output=False)", in));
  return plan;
}

std::string text_of(const Plan& plan) {
  std::string text;
  for (const auto& [name, style] : plan) text += style;
  return text;
}

// Names of which some stand in the plan.
Names used(const Plan& plan, const Names& names) {
  Names found;
  for (const std::string& name : names)
    if (text_of(plan).find(name + '(') != std::string::npos) found.push_back(name);
  return found;
}

void add_replicate(const Case& drawn, int depth, Lines& to) {
  const char* const policy =
      drawn.at("precision") == "bf16" ? ", mp_policy=fsdp.MixedPrecisionPolicy(torch.bfloat16, torch.float32)" : "";
  to.add(depth, fmt::format("options = dict(mesh=mesh[\"data\"]{})", policy));
  to.add(depth, "for block in model.blocks:").add(depth + 1, "replicate(block, **options)");
  to.add(depth, "replicate(model, **options)");
}

}  // namespace

std::string rank_of_data(const Case& drawn) {
  if (!is_tensors(drawn)) return " + dist.get_rank()";
  return drawn.at("over") == "none" ? "" : " + mesh.get_local_rank(\"data\")";
}

std::string has_first_data(const Case& drawn) {
  if (!is_tensors(drawn)) return "dist.get_rank() == 0";
  return drawn.at("over") == "none" ? "True" : "mesh.get_local_rank(\"data\") == 0";
}

void add_imports_of_tensors(const Case& drawn, Lines& to) {
  const Plan plan = plan_of(drawn);
  Names layouts = used(plan, {"Replicate"});
  if (!used(plan, {"Shard"}).empty() || is_on(drawn, "shard_last")) layouts.emplace_back("Shard");
  Names styles = used(plan, {"ColwiseParallel", "PrepareModuleInputOutput", "RowwiseParallel", "SequenceParallel"});
  if (drawn.at("logits") == "parallel") styles.emplace_back("loss_parallel");
  to.add_if(drawn.at("over") == "replicate", 0,
            "from torch.distributed._composable.replicate_with_fsdp import replicate");
  if (!layouts.empty()) to.add(0, fmt::format("from torch.distributed.tensor import {}", fmt::join(layouts, ", ")));
  if (plan.empty()) return;
  styles.emplace_back("parallelize_module");
  to.add(0, "from torch.distributed.tensor.parallel import (");
  add_words(styles, 1, to);
  to.add(0, ")");
}

void add_mesh(const Case& drawn, Lines& to) {
  const std::string& over = drawn.at("over");
  const std::string& by = drawn.at("shared_by");
  const std::string world = "dist.get_world_size()", some = over == "hsdp" ? "1, " : "";
  const std::string shape = over == "none" ? fmt::format("({},)", world)
                            : by == "all"  ? fmt::format("(1, {}{})", some, world)
                            : by == "half" ? fmt::format("(2, {}{} // 2)", some, world)
                                           : fmt::format("({} // 2, {}2)", world, some);
  const char* const names = over == "none"   ? "(\"tp\",)"
                            : over == "hsdp" ? "(\"data\", \"shard\", \"tp\")"
                                             : "(\"data\", \"tp\")";
  to.add(0, fmt::format("mesh = init_device_mesh(\"cpu\", {}, mesh_dim_names={})", shape, names));
  const Plan plan = plan_of(drawn);
  if (plan.empty()) return;
  to.add(0, "layers = {");
  for (const auto& [name, style] : plan) to.add(1, fmt::format("\"{}\": {},", name, style));
  to.add(0, "}");
}

void add_tensors(const Case& drawn, int depth, Lines& to) {
  const bool has_layers = !plan_of(drawn).empty();
  to.add_if(has_layers, depth,
            fmt::format("parallelize_module(model, mesh[\"tp\"], layers{})",
                        is_on(drawn, "scattered") ? "" : ", src_data_rank=None"));
  to.add_if(is_on(drawn, "retied"), depth, "model.head.weight = model.embed.weight");
  const std::string& over = drawn.at("over");
  if (over == "fsdp2" || over == "hsdp") add_fsdp2(drawn, depth, to);
  if (over == "replicate") add_replicate(drawn, depth, to);
  if (over == "ddp") {
    Names options = ddp_options(drawn);
    options.insert(options.begin(), {"model", "device_mesh=mesh[\"data\"]"});
    to.add(depth, "net = nn.parallel.DistributedDataParallel(");
    add_words(options, depth + 1, to);
    to.add(depth, ")");
  }
  if (!has_layers && (over == "none" || over == "hand")) to.add(depth, "pass  # no layer is shared");
}

void add_averaged_gradients(const Case& drawn, Lines& to) {
  const std::string& over = drawn.at("over");
  if (over == "none") return;
  if (over != "hand") {
    to.add(1, "if PLAIN:");
    return add_gradients(drawn, 2, to);
  }
  to.add(1, "for p in [p for p in model.parameters() if p.grad is not None]:");
  to.add(2, "part = p.grad.to_local() if hasattr(p.grad, \"to_local\") else p.grad");
  to.add(2, "dist.all_reduce(part, group=mesh.get_group(\"data\"))").add(2, "part /= mesh.size(0)");
}

void add_clipping_of_tensors(const Case& drawn, int depth, Lines& to) {
  const std::string& clips = drawn.at("clips");
  if (clips == "value") {
    to.add(depth, "nn.utils.clip_grad_value_(net.parameters(), 0.01)");
    return;
  }
  to.add(depth, "clipped = [p for p in net.parameters() if p.grad is not None]");
  if (clips == "total") {
    to.add(depth, "norm = nn.utils.get_total_norm([p.grad for p in clipped])");
    to.add(depth, "norm = norm.full_tensor() if hasattr(norm, \"full_tensor\") else norm");
    to.add(depth, "nn.utils.clip_grads_with_norm_(clipped, 0.2, norm)");
    return;
  }
  to.add(depth, "by_mesh = {}  # of parameters, those that are spread over the same ranks");
  to.add(depth, "for p in clipped:");
  to.add(depth + 1, "by_mesh.setdefault(getattr(p, \"device_mesh\", None), []).append(p)");
  to.add(depth, "norms = [nn.utils.get_total_norm([p.grad for p in some]) for some in by_mesh.values()]");
  to.add(depth, "norms = [norm.full_tensor() if hasattr(norm, \"full_tensor\") else norm for norm in norms]");
  to.add(depth, "for some in by_mesh.values():");
  to.add(depth + 1, "nn.utils.clip_grads_with_norm_(some, 0.2, torch.linalg.vector_norm(torch.stack(norms)))");
}

bool has_average(const Case& drawn) { return drawn.at("average") != "off"; }

void add_average(const Case& drawn, Lines& to) {
  to.add(1, "if step == 0:").add(2, "average = [p.detach().clone() for p in net.parameters()]");
  to.add(1, "with torch.no_grad():");
  if (drawn.at("average") == "foreach")
    to.add(2, "torch._foreach_lerp_(average, list(net.parameters()), 0.5)");
  else
    to.add(2, "for mean, p in zip(average, net.parameters()):").add(3, "mean.lerp_(p, 0.5)");
}

void add_average_used(Lines& to) {
  to.add(0, "with torch.no_grad():").add(1, "for mean, p in zip(average, net.parameters()):").add(2, "p.copy_(mean)");
}

}  // namespace seeksim::harness::torch
