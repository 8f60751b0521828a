#include "harness/torch/program/script.h"

#include <fmt/format.h>

#include <map>

namespace seeksim::harness::torch {
namespace {

// Words of a docstring, in lines.
void add_text(const std::string& text, Lines& to) {
  constexpr std::size_t kColumns = 100;
  for (std::size_t at = 0; at < text.size();) {
    std::size_t end = text.size();
    if (end - at > kColumns) end = text.rfind(' ', at + kColumns);
    to.add(0, text.substr(at, end - at));
    at = end + 1;
  }
}

void add_head(const Case& drawn, const std::string& name, const std::string& from, Lines& to) {
  const Rule held = expected_of(drawn);
  const std::string& wrapper = drawn.at("wrapper");
  const std::string np = drawn.at("np"), whole = is_tensors(drawn) ? "--set torch.record.whole=true " : "";
  add_text(fmt::format("\"\"\"{}. {} --plain: the same by hand.", case_text(drawn), from), to);
  const auto add_run = [&](const std::string& out, const std::string& options) {
    if (moves(drawn))
      to.add(0, fmt::format("seeksim torch run --np {} -- {} --first{}", ranks_before(drawn), name, options));
    to.add(0, fmt::format("seeksim torch run --np {} {}--out {} -- {}{}", np, whole, out, name, options));
  };
  add_run("plain", " --plain");
  add_run(wrapper, "");
  to.add(0, fmt::format("seeksim torch compare plain {} --grade {}", wrapper, torch::name(held.grade)));
  to.add(0, "\"\"\"");
}

void add_imports(const Case& drawn, Lines& to) {
  const std::string& recompute = drawn.at("recompute");
  const bool accumulates = drawn.at("accumulation") != "1" && drawn.at("sync") == "last";
  const bool gathers = drawn.at("gather") != "off" || drawn.at("look") == "whole";
  const bool looks = drawn.at("look") == "state", sharded = drawn.at("wrapper") == "fsdp1" || is_fsdp2(drawn);
  const bool own = has_own_loop(drawn), prepared = !own && !is_trainer(drawn), resumes = is_on(drawn, "resume");
  const bool waits = accumulates && has_no_sync(drawn);
  const bool casts = is_trainer(drawn) && drawn.at("precision") == "autocast";
  const bool casts_by_option =
      is_deepspeed(drawn) && (drawn.at("precision") == "autocast" || drawn.at("precision") == "fp16");
  const bool edits = edits_weight_first(drawn) && drawn.at("wrapper") == "fsdp1";
  const bool enters = edits || drawn.at("accumulates") == "coalesced" || is_on(drawn, "zero_init") || casts_by_option;
  to.add_if(enters || (own ? waits : prepared || casts), 0, "import contextlib");
  to.add_if(resumes && drawn.at("state") == "own", 0, "import copy");
  to.add_if(is_trainer(drawn) || ((is_deepspeed(drawn) || !own || moves(drawn)) && resumes) ||
                (is_deepspeed(drawn) && (gathers || looks)) || (is_deepspeed(drawn) && !own),
            0, "import os");
  to.add(0, "import sys");
  to.add_if(carries_state(drawn), 0, "from types import SimpleNamespace");
  to.add_if(is_deepspeed(drawn), 0, "import deepspeed");
  to.add_if(carries_state(drawn), 0, "from deepspeed.checkpoint import ds_to_universal");
  if (recompute.starts_with("deepspeed"))
    to.add(0, "import deepspeed.runtime.activation_checkpointing.checkpointing as activations");
  to.add_if(is_deepspeed(drawn) && drawn.at("wrapper") != "zero0" && drawn.at("gather") == "whole", 0,
            "from deepspeed.utils.zero_to_fp32 import get_fp32_state_dict_from_zero_checkpoint");
  if (has_deepspeeds_muon(drawn))
    to.add(0, "import torch._dynamo")
        .add(0, "torch._dynamo.config.disable = True  # else Muon's kernels are compiled, for long")
        .add(0, "from deepspeed.runtime.zero.muon.muon_optimizer import MuonWithAuxAdam");
  to.add_if(drawn.at("optimizer") == "cpu_adam", 0, "from deepspeed.ops.adam import DeepSpeedCPUAdam");
  to.add_if(is_on(drawn, "leaf"), 0, "from deepspeed.utils import set_z3_leaf_modules");
  add_imports_of_edit(drawn, to);
  to.add(0, "import torch").add(0, "import torch.distributed as dist");
  to.add_if(moves(drawn) && !is_deepspeed(drawn), 0, "import torch.distributed.checkpoint as dcp");
  to.add_if(sharded, 0, "import torch.distributed.fsdp as fsdp");
  to.add(0, "import torch.nn as nn").add(0, "import torch.nn.functional as F");
  add_imports_of_state(drawn, to);
  add_imports_of_options(drawn, to);
  to.add_if(drawn.at("precision") == "fp16" && drawn.at("wrapper") == "fsdp1", 0,
            "from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler");
  to.add_if(is_fsdp2(drawn) || drawn.at("strategy") == "hybrid" || is_tensors(drawn), 0,
            "from torch.distributed.device_mesh import init_device_mesh");
  to.add_if(drawn.at("redundancy") != "off", 0, "from torch.distributed.optim import ZeroRedundancyOptimizer");
  if (is_tensors(drawn))
    add_imports_of_tensors(drawn, to);
  else
    to.add_if(is_on(drawn, "shard_last"), 0, "from torch.distributed.tensor import Shard");
  to.add_if(is_on(drawn, "normed"), 0, "from torch.nn.utils.parametrizations import weight_norm");
  to.add_if(recompute == "on" || recompute == "reentrant", 0, "from torch.utils.checkpoint import checkpoint");
  add_loop_imports(drawn, to);
  to.gap().add(0, "PLAIN = \"--plain\" in sys.argv");
  to.add_if(moves(drawn), 0, "FIRST = \"--first\" in sys.argv  # as many steps as come before it is resumed");
}

}  // namespace

std::string optimizer_of(const Case& drawn) {
  const std::string& kind = drawn.at("optimizer");
  static const std::map<std::string, std::string> kNames = {{"sgd", "SGD"},     {"adagrad", "Adagrad"},
                                                            {"nadam", "NAdam"}, {"rmsprop", "RMSprop"},
                                                            {"asgd", "ASGD"},   {"muon", "Muon"}};
  const std::string made = kNames.contains(kind) ? kNames.at(kind) : "AdamW";
  std::string options = kind == "sgd"       ? "lr=0.1, momentum=0.9"
                        : kind == "rmsprop" ? "lr=0.01, momentum=0.9, eps=0.01"
                                            : "lr=0.01";
  if (kind == "foreach" || kind == "fused" || kind == "amsgrad") options += fmt::format(", {}=True", kind);
  const std::string parameters = kind == "groups"              ? "groups"
                                 : kind == "muon"              ? "[p for p in net.parameters() if p.dim() == 2]"
                                 : drawn.at("frozen") == "off" ? "net.parameters()"
                                                               : "trained";
  if (drawn.at("redundancy") == "off") return fmt::format("torch.optim.{}({}, {})", made, parameters, options);
  if (drawn.at("redundancy") == "view") options += ", **views";
  return fmt::format("ZeroRedundancyOptimizer({}, torch.optim.{}, {})", parameters, made, options);
}

const char* optimized_by(const Case& drawn) {
  if (drawn.at("made_by") == "script" && !has_deepspeeds_muon(drawn)) return "optimizer=optimizer";
  return drawn.at("frozen") == "off" ? "model_parameters=net.parameters()" : "model_parameters=trained";
}

namespace {

// Model, who distributes it, and optimizer; at this depth.
void add_objects(const Case& drawn, const std::string& seed, int depth, Lines& to) {
  const bool zero = is_deepspeed(drawn);
  const bool narrow = drawn.at("precision") == "bf16" && !zero && !casts_by_hand(drawn);
  if (is_on(drawn, "own_seeds"))
    to.add(depth, fmt::format("torch.manual_seed({0} if PLAIN else {0} + dist.get_rank())", seed));
  else
    to.add(depth, fmt::format("torch.manual_seed({})", seed));
  if (is_on(drawn, "zero_init"))
    to.add(depth, "with contextlib.nullcontext() if PLAIN else deepspeed.zero.Init(config_dict_or_path=CONFIG):")
        .add(depth + 1, "model = Model()");
  else
    to.add(depth,
           fmt::format("model = {}{}", drawn.at("loop") == "lightning" ? "(Model if PLAIN else Training)()" : "Model()",
                       narrow ? ".bfloat16()" : ""));
  if (drawn.at("compile") == "blocks")
    to.add(depth, "for block in [] if PLAIN else model.blocks:").add(depth + 1, "block.compile(backend=\"aot_eager\")");
  if (zero || !has_own_loop(drawn))
    to.add(depth, "net = model");
  else
    add_wrapping(drawn, depth, to);
  if (drawn.at("optimizer") == "groups") {
    to.add(depth, "named = [(name, p) for name, p in net.named_parameters() if p.requires_grad]");
    to.add(depth, "groups = [{\"params\": [p for name, p in named if \"head\" not in name]}]");
    to.add(depth, "groups += [{\"params\": [p for name, p in named if \"head\" in name], \"lr\": 0.03}]");
  } else {
    to.add_if(drawn.at("frozen") != "off", depth, "trained = [p for p in net.parameters() if p.requires_grad]");
  }
  Case bare = drawn;
  bare["redundancy"] = "off";
  has_deepspeeds_muon(drawn) ? add_muon(depth, to) : void(to.add(depth, "optimizer = " + optimizer_of(bare)));
  if (drawn.at("optimizer") == "cpu_adam")
    to.add(depth, "if not PLAIN:")
        .add(depth + 1, fmt::format("optimizer = DeepSpeedCPUAdam({}, lr=0.01, weight_decay=0.01)",
                                    drawn.at("frozen") == "off" ? "net.parameters()" : "trained"));
  if (drawn.at("redundancy") != "off")
    to.add(depth, "if not PLAIN:")
        .add_if(drawn.at("redundancy") == "view", depth + 1, "views = {\"parameters_as_bucket_view\": True}")
        .add(depth + 1, "optimizer = " + optimizer_of(drawn));
  if (is_on(drawn, "local_sgd")) add_local_optimizer(depth, to);
  to.add_if(is_on(drawn, "schedule"), depth,
            "schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step))");
  // Small enough that sums in fp16 do not overflow where others do not.
  if (scales_loss(drawn))
    to.add(depth, fmt::format("scaler = {}(\"cpu\", init_scale=2.0**10)",
                              drawn.at("wrapper") == "fsdp1" ? "(torch.amp.GradScaler if PLAIN else ShardedGradScaler)"
                                                             : "torch.amp.GradScaler"));
  if (!has_own_loop(drawn))
    add_prepare(drawn, depth, to);
  else if (zero)
    to.add(depth, "if not PLAIN:")
        .add(depth + 1, fmt::format("net, _, _, _ = deepspeed.initialize({}model=model, {}, config=CONFIG)",
                                    is_on(drawn, "schedule") ? "lr_scheduler=schedule, " : "", optimized_by(drawn)));
  if (zero && drawn.at("precision") == "fp16")
    to.add(depth + 1, "own = net.torch_autocast_z0_gradscaler or net.optimizer.torch_autocast_gradscaler")
        .add(depth + 1, "own._init_scale = 2.0**10  # there is no key for it");
  if (drawn.at("activations") != "kept")
    to.add(depth, "if not PLAIN:").add(depth + 1, "activations.configure(None, partition_activations=True)");
  if (drawn.at("compile") == "whole")
    to.add(depth, "if not PLAIN:").add(depth + 1, "net.compile(backend=\"aot_eager\")");
}

// What is made once, before the model is.
void add_begin(const Case& drawn, Lines& to) {
  to.gap().add(0, "dist.init_process_group(\"gloo\")");
  if (is_tensors(drawn)) add_mesh(drawn, to);
  add_loop(drawn, to);
}

bool has_two(const Case& drawn) { return drawn.at("models") == "2"; }

// They are made once; where the training resumes, again.
void add_build(const Case& drawn, Lines& to) {
  if (!is_on(drawn, "resume") && !is_trainer(drawn) && !has_two(drawn)) {
    add_begin(drawn, to);
    add_objects(drawn, "1", 0, to);
    return;
  }
  to.gap().add(0, "def build(seed):");
  add_objects(drawn, "seed", 1, to);
  to.add(1, "return " + names_of_objects(drawn));
  if (is_trainer(drawn)) return;
  add_begin(drawn, to);
  if (has_two(drawn)) {
    to.add(0, "both = [build(1), build(2)]");
    return;
  }
  if (!moves(drawn)) {
    to.add(0, names_of_objects(drawn) + " = build(1)");
    return;
  }
  to.add(0, names_of_objects(drawn) + " = build(1 if FIRST else 2)").add(0, folder_of_state());
  add_load(drawn, to);
}

void add_cast(const Case& drawn, Lines& to) {
  if (!casts_by_hand(drawn)) return;
  const std::string turn = turn_of(drawn);
  to.gap().add(0, fmt::format("def by_hand(model, x, {}):", turn));
  to.add(1, fmt::format("weights = {{name: p{} for name, p in model.named_parameters()}}", narrow_type(drawn)));
  to.add(1, fmt::format("return torch.func.functional_call(model, weights, (x, {}))", turn));
}

void add_backward(const Case& drawn, int depth, const std::string& loss, Lines& to) {
  to.add(depth, fmt::format(fmt::runtime(scales_loss(drawn) ? "scaler.scale({}).backward()" : "{}.backward()"), loss));
}

// A pass that is to change nothing.
void add_evaluation(const Case& drawn, int depth, const std::string& when, Lines& to) {
  const char* const turn = goes_by_micro_batch(drawn) ? "0" : "step";
  to.add(depth, when).add(depth + 1, "net.eval()").add(depth + 1, "with torch.no_grad():");
  to.add(depth + 2, fmt::format("net(batch(step, 90)[0], {})", turn)).add(depth + 1, "net.train()");
}

void add_step_of_torch(const Case& drawn, int depth, const std::string& divided, Lines& to) {
  const int last = std::stoi(drawn.at("accumulation")) - 1;
  const bool waits = last > 0 && drawn.at("sync") == "last";
  if (waits && is_fsdp2(drawn)) {
    to.add(depth, "if not PLAIN:").add(depth + 1, fmt::format("net.set_requires_gradient_sync(micro == {})", last));
  } else if (waits && has_no_sync(drawn)) {
    to.add(depth, fmt::format("waits = micro < {} and not PLAIN", last));
    to.add(depth++, "with net.no_sync() if waits else contextlib.nullcontext():");
  }
  add_options_of_micro_batch(drawn, depth, to);
  if (drawn.at("logits") == "parallel") to.add(depth++, "with loss_parallel():");
  add_loss(drawn, depth, to);
  if (drawn.at("forwards") == "apart") {
    to.add(depth, "for one in (first, loss):");
    add_backward(drawn, depth + 1, last == 0 ? "one" : fmt::format("(one / {})", last + 1), to);
  } else {
    add_backward(drawn, depth, divided, to);
  }
  if (drawn.at("evaluated") == "amid") add_evaluation(drawn, 2, "if micro == 0 and not PLAIN:", to);
  add_finalization(drawn, to);
  if (is_tensors(drawn)) {
    add_averaged_gradients(drawn, to);
  } else if (!is_on(drawn, "local_sgd")) {
    to.add(1, "if PLAIN:");
    add_gradients(drawn, 2, to);
  }
  if (drawn.at("evaluated") == "late") add_evaluation(drawn, 1, "if not PLAIN:", to);
  add_edit(drawn, 1, to);
  add_clipping(drawn, 1, to);
  add_optimizer_step(drawn, 1, to);
  if (is_on(drawn, "local_sgd")) add_local_average(to);
  if (has_average(drawn)) add_average(drawn, to);
}

// Its forward pass uses what the last step left.
void add_end(const Case& drawn, Lines& to) {
  const std::string& steps = drawn.at("steps");
  const std::string turn = !goes_by_micro_batch(drawn) ? steps : drawn.at("branch") == "late" ? "1" : "0";
  const std::string x =
      has_loader(drawn) ? "torch.stack([Samples()[i][0] for i in range(6)])" : fmt::format("batch({}, 0)[0]", steps);
  const std::string last = fmt::format("{}, {})", x, turn);
  // Of two models the last one: both have the same names.
  to.add(0, casts_by_hand(drawn) ? fmt::format("by_hand(model, {0} if PLAIN else net({0}", last) : "net(" + last);
  to.add(0, "dist.destroy_process_group()");
}

// All of one, at depth 1.
void add_step(const Case& drawn, const std::string& divided, Lines& to) {
  if (is_on(drawn, "resume") && !moves(drawn)) add_resume(drawn, to);
  if (drawn.at("look") != "off") add_look(drawn, to);
  if (edits_weight_first(drawn)) add_edit_of_weight(drawn, to);
  add_turn(drawn, to);
  if (is_on(drawn, "evaluate") && drawn.at("evaluated") == "first") add_evaluation(drawn, 1, "if not PLAIN:", to);
  if (!has_own_loop(drawn)) {
    add_step_of_loop(drawn, divided, to);
  } else if (is_deepspeed(drawn)) {
    add_step_of_zero(drawn, divided, to);
  } else {
    const std::string& micro_batches = drawn.at("accumulation");
    if (micro_batches == "1")
      to.add(1, "x, y = batch(step, 0)");
    else
      to.add(1, fmt::format("for micro in range({}):", micro_batches)).add(2, "x, y = batch(step, micro)");
    add_step_of_torch(drawn, micro_batches == "1" ? 1 : 2, divided, to);
  }
  to.add(1, "print(f\"rank {dist.get_rank()} step {step}: loss {loss.item():.9g}\")");
}

void add_training(const Case& drawn, Lines& to) {
  const std::string& micro_batches = drawn.at("accumulation");
  const std::string divided = micro_batches == "1" ? "loss" : fmt::format("(loss / {})", micro_batches);
  if (has_loader(drawn)) return add_epochs_program(drawn, to);
  if (is_trainer(drawn)) return add_trainer_program(drawn, divided, to);
  const int steps = std::stoi(drawn.at("steps"));
  if (moves(drawn))
    to.add(0, fmt::format("for step in range({0}) if FIRST else range({0}, {1}):", steps / 2, steps));
  else
    to.add(0, fmt::format("for step in range({}):", steps));
  if (has_two(drawn)) {
    Lines step;
    add_step(drawn, divided, step);
    to.add(1, fmt::format("for {} in both:", names_of_objects(drawn))).add_block(1, step);
  } else {
    add_step(drawn, divided, to);
  }
}

}  // namespace

bool has_flat_copies(const Case& drawn) {
  return is_deepspeed(drawn) && (drawn.at("wrapper") != "zero0" || drawn.at("precision") == "bf16");
}

bool fills_with_zeros(const Case& drawn) {
  // FSDP1 has a flat gradient of each unit: none, where the layer is a unit of its own that a step does not use.
  const bool flat = is_deepspeed(drawn) || (drawn.at("wrapper") == "fsdp1" && !other_is_unit(drawn));
  return is_on(drawn, "reduce_unused") || (drawn.at("branch") == "step" && flat) ||
         (drawn.at("turned") == "freeze" && has_flat_copies(drawn));
}

bool has_deepspeeds_muon(const Case& drawn) { return drawn.at("optimizer") == "muon" && !is_tensors(drawn); }

bool has_spike(const Case& drawn) { return drawn.at("scale") == "spike" || drawn.at("scale") == "part"; }

int middle(const Case& drawn) { return std::stoi(drawn.at("steps")) / 2; }

bool scales_loss(const Case& drawn) {
  return drawn.at("precision") == "fp16" || drawn.at("precision") == "half" || has_spike(drawn);
}

bool goes_by_micro_batch(const Case& drawn) { return drawn.at("branch") == "late" || drawn.at("branch") == "early"; }

std::string turn_of(const Case& drawn) { return goes_by_micro_batch(drawn) ? "micro" : "step"; }

std::string script_of(const Case& drawn, const std::string& name, const std::string& from) {
  Lines script;
  add_head(drawn, name, from, script);
  const auto own = is_pipe(drawn)     ? add_pipe_program
                   : is_stages(drawn) ? add_stages_program
                   : is_moe(drawn)    ? add_moe_program
                                      : nullptr;
  if (own != nullptr) return own(drawn, script), script.text();
  add_imports(drawn, script);
  add_model(drawn, script);
  has_loader(drawn) ? add_samples(drawn, script) : add_data(drawn, script);
  add_cast(drawn, script);
  if (is_deepspeed(drawn)) add_config(drawn, script);
  add_build(drawn, script);
  add_training(drawn, script);
  if (moves(drawn)) add_save(drawn, script);
  if (has_average(drawn)) add_average_used(script);
  if (drawn.at("gather") != "off") add_gathering(drawn, script);
  add_end(drawn, script);
  return script.text();
}

std::string plain_key(const Case& drawn) {
  std::string key = casts_by_hand(drawn) ? "cast" : "";
  if (is_pipe(drawn)) key += is_on(drawn, "told") && is_on(drawn, "evaluate") ? "pipe, evaluated" : "pipe";
  if (is_tensors(drawn)) key += "tensors";
  if (is_moe(drawn)) key += is_on(drawn, "evaluate") ? "moe, evaluated" : "moe";
  if (is_stages(drawn)) key += is_on(drawn, "told") && is_on(drawn, "evaluate") ? "stages, evaluated" : "stages";
  if (fills_with_zeros(drawn)) key += "zeros";
  if (!compressed_type(drawn).empty()) key += compressed_type(drawn);
  if (edits_weight_first(drawn)) key += "first";
  if (has_loader(drawn)) key += drawn.at("loop");  // which deals samples out
  if (drawn.at("edit") != "off" && drawn.at("wrapper") == "zero3") key += "block";
  if (scales_loss(drawn)) key += drawn.at("backward");  // which loss it is called of
  for (const Feature& one : features())
    if (one.of_plain) key += '|' + drawn.at(one.name);
  return key;
}

}  // namespace seeksim::harness::torch
