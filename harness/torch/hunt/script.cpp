#include "harness/torch/hunt/script.h"

#include <fmt/format.h>

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
  const std::string np = drawn.at("np");
  add_text(fmt::format("\"\"\"{}. {} --plain: the same by hand.", case_text(drawn), from), to);
  to.add(0, fmt::format("seeksim torch run --np {} --out plain -- {} --plain", np, name));
  to.add(0, fmt::format("seeksim torch run --np {} --out {} -- {}", np, wrapper, name));
  to.add(0, fmt::format("seeksim torch compare plain {} --grade {}", wrapper, torch::name(held.grade)));
  to.add(0, "\"\"\"");
}

void add_imports(const Case& drawn, Lines& to) {
  const bool accumulates = drawn.at("accumulation") != "1" && drawn.at("sync") == "last";
  const bool own = has_own_loop(drawn), prepared = !own && !is_trainer(drawn), resumes = is_on(drawn, "resume");
  const bool waits = accumulates && !is_deepspeed(drawn) && !is_fsdp2(drawn);
  const bool casts = is_trainer(drawn) && drawn.at("precision") == "autocast";
  to.add_if(own ? waits : prepared || casts, 0, "import contextlib");
  to.add_if(is_trainer(drawn) || ((is_deepspeed(drawn) || !own) && resumes) || (is_deepspeed(drawn) && !own), 0,
            "import os");
  to.add(0, "import sys");
  to.add_if(is_deepspeed(drawn), 0, "import deepspeed");
  to.add(0, "import torch").add(0, "import torch.distributed as dist");
  to.add_if(drawn.at("wrapper") == "fsdp1" || is_fsdp2(drawn), 0, "import torch.distributed.fsdp as fsdp");
  to.add(0, "import torch.nn as nn").add(0, "import torch.nn.functional as F");
  to.add_if(own && !is_deepspeed(drawn) && resumes, 0,
            "from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict");
  to.add_if(is_fsdp2(drawn), 0, "from torch.distributed.device_mesh import init_device_mesh");
  to.add_if(is_on(drawn, "redundancy"), 0, "from torch.distributed.optim import ZeroRedundancyOptimizer");
  to.add_if(is_on(drawn, "shard_last"), 0, "from torch.distributed.tensor import Shard");
  to.add_if(drawn.at("recompute") != "off", 0, "from torch.utils.checkpoint import checkpoint");
  add_loop_imports(drawn, to);
  to.gap().add(0, "PLAIN = \"--plain\" in sys.argv");
}

std::string optimizer_of(const Case& drawn) {
  const std::string& kind = drawn.at("optimizer");
  const std::string made = kind == "sgd" ? "SGD" : "AdamW";
  std::string options = kind == "sgd" ? "lr=0.1, momentum=0.9" : "lr=0.01";
  if (kind == "foreach" || kind == "fused") options += fmt::format(", {}=True", kind);
  const std::string parameters = kind == "groups"              ? "groups"
                                 : drawn.at("frozen") == "off" ? "net.parameters()"
                                                               : "trained";
  if (!is_on(drawn, "redundancy")) return fmt::format("torch.optim.{}({}, {})", made, parameters, options);
  return fmt::format("ZeroRedundancyOptimizer({}, torch.optim.{}, {})", parameters, made, options);
}

// Model, who distributes it, and optimizer; at this depth.
void add_objects(const Case& drawn, const std::string& seed, int depth, Lines& to) {
  const bool zero = is_deepspeed(drawn);
  const bool narrow = drawn.at("precision") == "bf16" && drawn.at("wrapper") == "ddp";
  to.add(depth, fmt::format("torch.manual_seed({})", seed));
  if (is_on(drawn, "zero_init"))
    to.add(depth, "with deepspeed.zero.Init(config_dict_or_path=CONFIG, enabled=not PLAIN):")
        .add(depth + 1, "model = Model()");
  else
    to.add(depth,
           fmt::format("model = {}{}", drawn.at("loop") == "lightning" ? "(Model if PLAIN else Training)()" : "Model()",
                       narrow ? ".bfloat16()" : ""));
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
  to.add(depth, "optimizer = " + optimizer_of(bare));
  if (is_on(drawn, "redundancy")) to.add(depth, "if not PLAIN:").add(depth + 1, "optimizer = " + optimizer_of(drawn));
  to.add_if(is_on(drawn, "schedule"), depth,
            "schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step))");
  if (!has_own_loop(drawn))
    add_prepare(drawn, depth, to);
  else if (zero)
    to.add(depth, "if not PLAIN:")
        .add(depth + 1,
             fmt::format("net, _, _, _ = deepspeed.initialize({}model=model, optimizer=optimizer, config=CONFIG)",
                         is_on(drawn, "schedule") ? "lr_scheduler=schedule, " : ""));
}

std::string names_of_objects(const Case& drawn) {
  return fmt::format("model, net, optimizer{}", is_on(drawn, "schedule") ? ", schedule" : "");
}

// They are made once; where the training resumes, again.
void add_build(const Case& drawn, Lines& to) {
  if (!is_on(drawn, "resume") && !is_trainer(drawn)) {
    to.gap().add(0, "dist.init_process_group(\"gloo\")");
    add_loop(drawn, to);
    add_objects(drawn, "1", 0, to);
    return;
  }
  to.gap().add(0, "def build(seed):");
  add_objects(drawn, "seed", 1, to);
  to.add(1, "return " + names_of_objects(drawn));
  if (is_trainer(drawn)) return;
  to.gap().add(0, "dist.init_process_group(\"gloo\")");
  add_loop(drawn, to);
  to.add(0, names_of_objects(drawn) + " = build(1)");
}

void add_cast(const Case& drawn, Lines& to) {
  if (!casts_by_hand(drawn)) return;
  const std::string turn = turn_of(drawn);
  to.gap().add(0, fmt::format("def by_hand(model, x, {}):", turn));
  to.add(1, "weights = {name: p.bfloat16() for name, p in model.named_parameters()}");
  to.add(1, fmt::format("return torch.func.functional_call(model, weights, (x, {}))", turn));
}

// Behind some steps: the state goes into new objects.
void add_resume(const Case& drawn, Lines& to) {
  const std::string made = names_of_objects(drawn) + " = build(2)";
  to.add(1, fmt::format("if step == {} and not PLAIN:", std::stoi(drawn.at("steps")) / 2));
  const bool restores = is_on(drawn, "dropout") && drawn.at("loop") != "accelerate";  // which does so itself
  to.add_if(restores, 2, "random = torch.get_rng_state()");
  if (!has_own_loop(drawn)) {
    add_resume_of_loop(drawn, made, to);
  } else if (is_deepspeed(drawn)) {
    to.add(2, "folder = os.path.splitext(os.path.abspath(__file__))[0] + \".saved\"");
    to.add(2, "net.save_checkpoint(folder)").add(2, made).add(2, "net.load_checkpoint(folder)");
  } else {
    to.add_if(is_on(drawn, "schedule"), 2, "place = schedule.state_dict()");
    to.add(2, "of_model, of_optimizer = get_state_dict(net, optimizer)").add(2, made);
    to.add(2, "set_state_dict(net, optimizer, model_state_dict=of_model, optim_state_dict=of_optimizer)");
    to.add_if(is_on(drawn, "schedule"), 2, "schedule.load_state_dict(place)");
  }
  to.add_if(restores, 2, "torch.set_rng_state(random)");
}

void add_step_of_zero(const Case& drawn, int depth, const std::string& divided, Lines& to) {
  add_loss(drawn, depth, to);
  to.add(depth, "if not PLAIN:").add(depth + 1, "net.backward(loss)").add(depth + 1, "net.step()");
  to.add(depth, "else:").add(depth + 1, divided + ".backward()");
  to.add_if(depth > 1, 1, "if PLAIN:");  // of one micro-batch the step goes on in the same branch
  add_gradients(drawn, 2, to);
  add_clipping(drawn, 2, to);
  add_optimizer_step(drawn, 2, to);
}

void add_step_of_torch(const Case& drawn, int depth, const std::string& divided, Lines& to) {
  const int last = std::stoi(drawn.at("accumulation")) - 1;
  const bool waits = last > 0 && drawn.at("sync") == "last";
  if (waits && is_fsdp2(drawn)) {
    to.add(depth, "if not PLAIN:").add(depth + 1, fmt::format("net.set_requires_gradient_sync(micro == {})", last));
  } else if (waits) {
    to.add(depth, fmt::format("waits = micro < {} and not PLAIN", last));
    to.add(depth++, "with net.no_sync() if waits else contextlib.nullcontext():");
  }
  if (last > 0 && is_on(drawn, "keep"))
    to.add(depth, "if not PLAIN:").add(depth + 1, fmt::format("net.set_reshard_after_backward(micro == {})", last));
  add_loss(drawn, depth, to);
  to.add(depth, divided + ".backward()");
  to.add(1, "if PLAIN:");
  add_gradients(drawn, 2, to);
  add_clipping(drawn, 1, to);
  add_optimizer_step(drawn, 1, to);
}

// Its forward pass uses what the last step left.
void add_end(const Case& drawn, Lines& to) {
  const std::string& steps = drawn.at("steps");
  const std::string turn = !goes_by_micro_batch(drawn) ? steps : drawn.at("branch") == "late" ? "1" : "0";
  const std::string last = fmt::format("batch({}, 0)[0], {})", steps, turn);
  to.add(0, casts_by_hand(drawn) ? fmt::format("by_hand(model, {0} if PLAIN else net({0}", last) : "net(" + last);
  to.add(0, "dist.destroy_process_group()");
}

void add_training(const Case& drawn, Lines& to) {
  const std::string& micro_batches = drawn.at("accumulation");
  const std::string divided = micro_batches == "1" ? "loss" : fmt::format("(loss / {})", micro_batches);
  if (is_trainer(drawn)) return add_trainer_program(drawn, divided, to);
  to.add(0, fmt::format("for step in range({}):", drawn.at("steps")));
  if (is_on(drawn, "resume")) add_resume(drawn, to);
  if (!has_own_loop(drawn)) {
    add_step_of_loop(drawn, divided, to);
  } else {
    if (micro_batches == "1")
      to.add(1, "x, y = batch(step, 0)");
    else
      to.add(1, fmt::format("for micro in range({}):", micro_batches)).add(2, "x, y = batch(step, micro)");
    const int depth = micro_batches == "1" ? 1 : 2;
    is_deepspeed(drawn) ? add_step_of_zero(drawn, depth, divided, to) : add_step_of_torch(drawn, depth, divided, to);
  }
  to.add(1, "print(f\"rank {dist.get_rank()} step {step}: loss {loss.item():.9g}\")");
}

}  // namespace

void add_gradients(const Case& drawn, int depth, Lines& to) {
  to.add(depth++, "for p in model.parameters():");
  if (drawn.at("branch") == "rank") {
    to.add(depth, "used = torch.tensor(float(p.grad is not None))").add(depth, "dist.all_reduce(used)");
    to.add(depth, "if p.grad is None and used:").add(depth + 1, "p.grad = torch.zeros_like(p)");
  }
  // Nothing else leaves a parameter without a gradient.
  const bool all_used = drawn.at("branch") == "off" && drawn.at("unused") == "off" && drawn.at("frozen") == "off";
  if (all_used) {
    to.add(depth, "dist.all_reduce(p.grad)").add(depth, "p.grad /= dist.get_world_size()");
    return;
  }
  if (fills_with_zeros(drawn))
    to.add(depth, "if p.grad is None:").add(depth + 1, "p.grad = torch.zeros_like(p)  # as this wrapper does");
  to.add(depth, "if p.grad is not None:").add(depth + 1, "dist.all_reduce(p.grad)");
  to.add(depth + 1, "p.grad /= dist.get_world_size()");
}

void add_loss(const Case& drawn, int depth, Lines& to) {
  const std::string turn = turn_of(drawn);
  const std::string call = casts_by_hand(drawn)
                               ? fmt::format("(by_hand(model, x, {0}) if PLAIN else net(x, {0}))", turn)
                               : fmt::format("net(x, {})", turn);
  std::string logits = call + (drawn.at("output") == "dict" ? "[\"logits\"]" : "");
  if (drawn.at("precision") != "fp32") logits += ".float()";
  if (drawn.at("precision") == "autocast") {
    // Others have it as their option, and one inside theirs would take its place.
    to.add(depth, fmt::format("with torch.autocast(\"cpu\", dtype=torch.bfloat16){}:",
                              has_own_loop(drawn) ? "" : " if PLAIN else contextlib.nullcontext()"));
    ++depth;
  }
  if (drawn.at("forwards") == "1") {
    to.add(depth, fmt::format("loss = F.cross_entropy({}, y)", logits));
  } else {
    to.add(depth, fmt::format("loss = F.cross_entropy({}, y)", logits))
        .add(depth, drawn.at("accumulation") == "1" ? "x, y = batch(step, 50)" : "x, y = batch(step, 50 + micro)");
    to.add(depth, fmt::format("loss = loss + F.cross_entropy({}, y)", logits));
  }
}

void add_clipping(const Case& drawn, int depth, Lines& to) {
  if (!is_on(drawn, "clip")) return;
  if (drawn.at("wrapper") == "fsdp1")
    to.add(depth, "nn.utils.clip_grad_norm_(net.parameters(), 0.2) if PLAIN else net.clip_grad_norm_(0.2)");
  else
    to.add(depth, "nn.utils.clip_grad_norm_(net.parameters(), 0.2)");
}

void add_optimizer_step(const Case& drawn, int depth, Lines& to) {
  to.add(depth, "optimizer.step()").add_if(is_on(drawn, "schedule"), depth, "schedule.step()");
  to.add(depth, "optimizer.zero_grad()");
}

bool fills_with_zeros(const Case& drawn) {
  // FSDP1 has a flat gradient of each unit: none, where the layer is a unit of its own that a step does not use.
  const bool flat = is_deepspeed(drawn) || (drawn.at("wrapper") == "fsdp1" && !other_is_unit(drawn));
  return drawn.at("branch") == "step" && flat;
}

bool goes_by_micro_batch(const Case& drawn) { return drawn.at("branch") == "late" || drawn.at("branch") == "early"; }

std::string turn_of(const Case& drawn) { return goes_by_micro_batch(drawn) ? "micro" : "step"; }

Lines& Lines::add(int depth, const std::string& text) {
  if (!text.empty()) text_ += std::string(std::size_t(depth) * 4, ' ') + text;
  text_ += '\n';
  return *this;
}

std::string script_of(const Case& drawn, const std::string& name, const std::string& from) {
  Lines script;
  add_head(drawn, name, from, script);
  add_imports(drawn, script);
  add_model(drawn, script);
  add_data(drawn, script);
  add_cast(drawn, script);
  if (is_deepspeed(drawn)) add_config(drawn, script);
  add_build(drawn, script);
  add_training(drawn, script);
  add_end(drawn, script);
  return script.text();
}

std::string plain_key(const Case& drawn) {
  std::string key = casts_by_hand(drawn) ? "cast" : "";
  if (fills_with_zeros(drawn)) key += "zeros";
  for (const Feature& one : features())
    if (one.of_plain) key += '|' + drawn.at(one.name);
  return key;
}

}  // namespace seeksim::harness::torch
