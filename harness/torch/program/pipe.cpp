// A drawn case of a pipeline as a program: its layers, the whole model that trains by hand, and its steps.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "harness/torch/program/script.h"

namespace seeksim::harness::torch {
namespace {

using Names = std::vector<std::string>;

bool has_tokens(const Case& drawn) { return drawn.at("inputs") == "tokens"; }
bool are_given(const Case& drawn) { return drawn.at("layers") == "given"; }  // as modules
bool has_replicas(const Case& drawn) { return drawn.at("ways") == "half"; }  // of the pipeline, two
bool passes_two(const Case& drawn) { return drawn.at("passed") != "tensor"; }
bool has_ties(const Case& drawn) { return is_on(drawn, "tied") || is_on(drawn, "reused"); }
std::string samples_of(const Case& drawn) {
  return drawn.at("sizes") == "micro" ? "size" : std::to_string(kInMicroBatch);
}

void add_pipe_imports(const Case& drawn, Lines& to) {
  to.add_if(drawn.at("gather") != "off", 0, "import glob");
  to.add_if(is_on(drawn, "resume") || drawn.at("look") != "off" || drawn.at("gather") != "off", 0, "import os");
  to.add(0, "import sys").add(0, "import deepspeed").add(0, "import torch");
  to.add(0, "import torch.distributed as dist").add(0, "import torch.nn as nn");
  to.add(0, "import torch.nn.functional as F");
  to.add(0, are_given(drawn) ? "from deepspeed.pipe import PipelineModule"
                             : fmt::format("from deepspeed.pipe import LayerSpec, PipelineModule{}",
                                           has_ties(drawn) ? ", TiedLayerSpec" : ""));
  to.gap().add(0, "PLAIN = \"--plain\" in sys.argv");
}

// At the end of a layer's __init__().
void add_freezing(const Case& drawn, bool is_body, Lines& to) {
  const std::string& frozen = drawn.at("frozen");
  if (frozen == "body" && is_body) to.add(2, "self.requires_grad_(False)");
  if (frozen == "bias")
    to.add(2, "for name, p in self.named_parameters():").add(3, "p.requires_grad_(\"bias\" not in name)");
}

void add_embedding(const Case& drawn, Lines& to) {
  if (!has_tokens(drawn)) return;
  to.gap().add(0, "class Embed(nn.Module):").add(1, "def __init__(self):").add(2, "super().__init__()");
  to.add(2, fmt::format("self.weight = nn.Parameter(torch.randn({}, {}))", kWords, drawn.at("width")));
  add_freezing(drawn, true, to);
  to.gap().add(1, "def forward(self, x):");
  if (is_on(drawn, "tied")) {
    to.add(2, fmt::format("if {}:  # it is the head",
                          passes_two(drawn) ? "isinstance(x, tuple)" : "x.is_floating_point()"));
    if (drawn.at("passed") == "pair")
      to.add(3, "return F.linear(x[0] + x[1], self.weight)");
    else if (passes_two(drawn))
      to.add(3, fmt::format("return F.linear(x[0], self.weight) + F.one_hot(x[1], {}) * 0.1", kWords));
    else
      to.add(3, "return F.linear(x, self.weight)");
  }
  to.add(2, "h = F.embedding(x, self.weight)");
  to.add(2, drawn.at("passed") == "pair" ? "return h, h" : passes_two(drawn) ? "return h, x" : "return h");
}

void add_block_layer(const Case& drawn, Lines& to) {
  const std::string& width = drawn.at("width");
  const std::string norm = is_on(drawn, "norm") ? fmt::format("nn.LayerNorm({}), ", width) : "";
  to.gap().add(0, "class Block(nn.Sequential):").add(1, "def __init__(self):");
  to.add(2, fmt::format("super().__init__({0}nn.Linear({1}, 20), nn.Tanh(), nn.Linear(20, {1}){2})", norm, width,
                        is_on(drawn, "dropout") ? ", nn.Dropout(0.1)" : ""));
  to.add_if(is_on(drawn, "unused"), 2, "self.unused = nn.Parameter(torch.zeros(3))");
  add_freezing(drawn, true, to);
  to.add(1, "def forward(self, h):");
  if (!passes_two(drawn)) {
    to.add(2, "return h + super().forward(h)");
  } else if (has_tokens(drawn)) {
    to.add(2, "return h[0] + super().forward(h[0]), h[1]");
  } else {  // the first one gets a tensor
    to.add(2, "h, other = h if isinstance(h, tuple) else (h, None)").add(2, "h = h + super().forward(h)");
    to.add(2, "return h, h if other is None else other");
  }
  if (drawn.at("frozen") == "block") {
    to.gap().add(0, "class FrozenBlock(Block):").add(1, "def __init__(self):").add(2, "super().__init__()");
    to.add(2, "self.requires_grad_(False)");
  }
}

// The head is a class of its own where it is more than a linear layer.
bool has_head(const Case& drawn) {
  return !is_on(drawn, "tied") && (passes_two(drawn) || drawn.at("frozen") == "bias");
}

void add_head_layer(const Case& drawn, Lines& to) {
  if (!has_head(drawn)) return;
  to.gap().add(0, "class Head(nn.Linear):");
  if (drawn.at("frozen") == "bias") {
    to.add(1, "def __init__(self, *sizes):").add(2, "super().__init__(*sizes)");
    add_freezing(drawn, false, to);
    to.add_if(passes_two(drawn), 0, "");
  }
  if (!passes_two(drawn)) return;
  to.add(1, "def forward(self, h):");
  to.add(2, drawn.at("passed") == "pair"
                ? "return super().forward(h[0] + h[1])"
                : fmt::format("return super().forward(h[0]) + F.one_hot(h[1], {}) * 0.1", kWords));
}

// The list that PipelineModule gets.
void add_layers(const Case& drawn, Lines& to) {
  const bool given = are_given(drawn), reused = is_on(drawn, "reused"), functions = is_on(drawn, "functions");
  const auto spec = [&](const std::string& kind, const std::string& sizes = "") {
    return given ? fmt::format("{}({})", kind, sizes)
                 : fmt::format("LayerSpec({}{}{})", kind, sizes.empty() ? "" : ", ", sizes);
  };
  Names layers;
  if (has_tokens(drawn)) layers.push_back(is_on(drawn, "tied") ? "TiedLayerSpec(\"word\", Embed)" : spec("Embed"));
  const int depth = std::stoi(drawn.at("depth"));
  for (int block = 0; block < depth; ++block) {
    if (block > 0 && functions) layers.emplace_back("between");
    const bool frozen = block == 0 && drawn.at("frozen") == "block";
    layers.push_back(block == 0 && reused ? "again" : spec(frozen ? "FrozenBlock" : "Block"));
  }
  if (reused) layers.emplace_back("again");
  if (functions) layers.emplace_back("between");
  const std::string head =
      spec(has_head(drawn) ? "Head" : "nn.Linear", fmt::format("{}, {}", drawn.at("width"), kWords));
  layers.push_back(is_on(drawn, "tied") ? layers.front() : head);
  if (functions)
    to.gap().add(0, "def between(h):").add(1, passes_two(drawn) ? "return h[0].tanh(), h[1]" : "return h.tanh()");
  to.gap();
  if (reused)
    to.add(0, "names = [name for name, _ in Block().named_parameters()]")
        .add(0, fmt::format("again = TiedLayerSpec(\"again\", {}, tied_weight_attr=names)",
                            drawn.at("frozen") == "block" ? "FrozenBlock" : "Block"));
  if (given) to.add(0, "def layers(seed):").add(1, "torch.manual_seed(seed)");
  const std::string in_a_line = fmt::to_string(fmt::join(layers, ", "));
  if (in_a_line.size() < 100) {
    to.add(int(given), fmt::format("{} [{}]", given ? "return" : "LAYERS =", in_a_line));
    return;
  }
  to.add(int(given), given ? "return [" : "LAYERS = [");
  add_words(layers, int(given) + 1, to);
  to.add(int(given), "]");
}

// All layers are modules that are called one after the other.
bool is_sequence(const Case& drawn) {
  return !has_ties(drawn) && !is_on(drawn, "functions") && !is_on(drawn, "dropout");
}

// The whole model, whose weights have the names that PipelineModule gives them.
void add_whole(const Case& drawn, Lines& to) {
  const bool functions = is_on(drawn, "functions"), given = are_given(drawn), ties = has_ties(drawn);
  const bool drops = is_on(drawn, "dropout");
  if (is_sequence(drawn) && given) return;
  if (is_sequence(drawn)) {
    to.gap().add(0, "def whole(seed):  # with PipelineModule's names");
    to.add(1, "return nn.Sequential(*(torch.manual_seed(seed + i) and one.build() for i, one in enumerate(LAYERS)))");
    return;
  }
  to.gap().add(0, "class whole(nn.Module):  # with PipelineModule's names");
  to.add(1, "def __init__(self, seed):").add(2, "super().__init__()");
  to.add(2, ties ? "self.calls, self.tied_modules = [], nn.ModuleDict()" : "self.calls = []");
  to.add_if(drops, 2, "self.seed, self.passes = seed, 0");
  to.add(2, fmt::format("for i, layer in enumerate({}):", given ? "layers(seed)" : "LAYERS"));
  int depth = 3;
  if (functions) to.add(depth++, given ? "if isinstance(layer, nn.Module):" : "if isinstance(layer, LayerSpec):");
  to.add_if(!given, depth, "torch.manual_seed(seed + i)");
  if (ties) {
    to.add(depth, "key = getattr(layer, \"key\", None)");
    to.add(depth, "layer = self.tied_modules[key] if key in self.tied_modules else layer.build()");
    to.add(depth, "(self.tied_modules if key else self).add_module(key or str(i), layer)");
  } else {
    to.add_if(!given, depth, "layer = layer.build()").add(depth, "self.add_module(str(i), layer)");
  }
  to.add(3, "self.calls.append(layer)");
  to.gap().add(1, "def forward(self, h):");
  to.add_if(drops, 2, "self.passes += 1");
  to.add(2, drops ? "for i, layer in enumerate(self.calls):" : "for layer in self.calls:");
  to.add_if(drops, 3, "torch.manual_seed(self.seed * (self.passes + 1) + i)  # as seed_layers does");
  to.add(3, "h = layer(h)").add(2, "return h");
}

// What makes it.
std::string whole_of(const Case& drawn, const std::string& seed) {
  return fmt::format(fmt::runtime(is_sequence(drawn) && are_given(drawn) ? "nn.Sequential(*layers({}))" : "whole({})"),
                     seed);
}

void add_data_of_pipe(const Case& drawn, Lines& to) {
  to.gap().add(0, "def batch(step, micro):");
  to.add(1, has_replicas(drawn)
                ? "generator = torch.Generator().manual_seed((step * 100 + micro) * 64 + dist.get_rank() % 2)"
                : "generator = torch.Generator().manual_seed(step * 100 + micro)");
  to.add_if(drawn.at("sizes") == "micro", 1, fmt::format("size = {} - micro % 3", kInMicroBatch));
  const std::string size = samples_of(drawn);
  if (has_tokens(drawn))
    to.add(1, fmt::format("x = torch.randint(0, {}, ({},), generator=generator)", kWords, size));
  else
    to.add(1, fmt::format("x = torch.randn({}, {}, generator=generator){}", size, drawn.at("width"),
                          drawn.at("precision") == "bf16" ? ".bfloat16()" : ""));
  to.add(1, fmt::format("return x, torch.randint(0, {}, ({},), generator=generator)", kWords, size));
  if (!casts_by_hand(drawn)) return;
  to.gap().add(0, "def loss_of(logits, y):").add(1, "return F.cross_entropy(logits.float(), y)");
  to.gap().add(0, "def by_hand(model, x):");
  to.add(1, "weights = {name: p.bfloat16() for name, p in model.named_parameters()}");
  to.add(1, "return torch.func.functional_call(model, weights, (x,))");
}

Names module_options(const Case& drawn, const std::string& seed) {
  Names options = {are_given(drawn) ? fmt::format("layers({})", seed) : "LAYERS",
                   fmt::format("num_stages={}", std::stoi(drawn.at("np")) / (has_replicas(drawn) ? 2 : 1)),
                   casts_by_hand(drawn) ? "loss_fn=loss_of" : "loss_fn=F.cross_entropy"};
  const std::string& method = drawn.at("partition");
  if (method != "parameters")
    options.push_back(fmt::format("partition_method=\"{}\"", method == "type" ? "type:Block" : method));
  if (!are_given(drawn)) options.insert(options.end(), {"seed_layers=True", "base_seed=" + seed});
  // random.seed() does not take the numbers that a balanced partition makes of layers.
  if (!are_given(drawn) && method != "uniform") options.emplace_back("seed_fn=torch.manual_seed");
  if (drawn.at("sizes") == "micro") options.emplace_back("dynamic_shape=True");
  if (drawn.at("recompute") != "off") options.push_back("activation_checkpoint_interval=" + drawn.at("interval"));
  if (drawn.at("checkpointed") == "blocks") options.emplace_back("checkpointable_layers=[\"Block\", \"FrozenBlock\"]");
  return options;
}

void add_pipe_objects(const Case& drawn, const std::string& seed, int depth, Lines& to) {
  const std::string own = is_on(drawn, "own_seeds") ? seed + " + 10 * (dist.get_rank() % 2)" : seed;
  const std::string model = fmt::format("net = model = {} if PLAIN else PipelineModule(", whole_of(drawn, seed));
  const Names options = module_options(drawn, own);
  const std::string in_a_line = fmt::to_string(fmt::join(options, ", "));
  if (model.size() + in_a_line.size() < 115) {
    to.add(depth, model + in_a_line + ')');
  } else {
    to.add(depth, model);
    add_words(options, depth + 1, to);
    to.add(depth, ")");
  }
  if (drawn.at("optimizer") == "groups") {
    to.add(depth, "trained = [p for p in net.parameters() if p.requires_grad]");
    to.add(depth, "groups = [{\"params\": [p for p in trained if p.dim() > 1]}]");
    to.add(depth, "groups += [{\"params\": [p for p in trained if p.dim() == 1], \"lr\": 0.03}]");
  } else {
    to.add_if(drawn.at("frozen") != "off", depth, "trained = [p for p in net.parameters() if p.requires_grad]");
  }
  to.add(depth, "optimizer = " + optimizer_of(drawn));
  to.add_if(is_on(drawn, "schedule"), depth,
            "schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step))");
  to.add(depth, "if not PLAIN:")
      .add(depth + 1, fmt::format("net, _, _, _ = deepspeed.initialize({}model=model, {}, config=CONFIG)",
                                  is_on(drawn, "schedule") ? "lr_scheduler=schedule, " : "", optimized_by(drawn)));
}

void add_pipe_build(const Case& drawn, Lines& to) {
  const bool resumes = is_on(drawn, "resume");
  if (resumes) {
    to.gap().add(0, "def build(seed):");
    add_pipe_objects(drawn, "seed", 1, to);
    to.add(1, "return " + names_of_objects(drawn));
  }
  to.gap().add(0, "deepspeed.init_distributed(\"gloo\")");
  if (resumes)
    to.add(0, names_of_objects(drawn) + " = build(1)");
  else
    add_pipe_objects(drawn, "1", 0, to);
}

std::string loss_by_hand(const Case& drawn) {
  return casts_by_hand(drawn) ? "loss_of(by_hand(model, x), y)" : "F.cross_entropy(model(x), y)";
}

// A pass that is to change nothing, and says the same loss.
void add_pipe_evaluation(const Case& drawn, Lines& to) {
  const std::string& count = drawn.at("accumulation");
  to.add(1, fmt::format("seen = [batch(step, 90 + micro) for micro in range({})]", count));
  const std::string call =
      fmt::format("net.eval_batch(iter(seen){})", is_on(drawn, "grows") ? ", num_micro_batches=len(seen)" : "");
  if (!is_on(drawn, "told")) {
    to.add(1, "if not PLAIN:").add(2, call);
    return;
  }
  to.add(1, "if PLAIN:").add(2, "with torch.no_grad():");
  to.add(3, fmt::format("loss = sum({} for x, y in seen) / len(seen)", loss_by_hand(drawn)));
  to.add(2, "dist.all_reduce(loss)")
      .add(1, fmt::format("told.append(loss / dist.get_world_size() if PLAIN else {})", call));
}

// A step by hand, at depth 2.
void add_step_by_hand(const Case& drawn, Lines& to) {
  const std::string& count = drawn.at("accumulation");
  const bool grows = is_on(drawn, "grows"), told = is_on(drawn, "told"), several = count != "1" || grows;
  to.add_if(told, 2, "total = 0");
  to.add(2, several || told ? "for x, y in batches:" : "x, y = batch(step, 0)");
  const int depth = several || told ? 3 : 2;
  to.add(depth, "loss = " + loss_by_hand(drawn));
  to.add(depth, grows || !several ? "loss.backward()" : fmt::format("(loss / {}).backward()", count));
  to.add_if(told, depth, "total = total + loss.detach()");
  if (grows)
    to.add(2, "for p in [p for p in model.parameters() if p.grad is not None]:").add(3, "p.grad /= len(batches)");
  if (told)
    to.add(2, "loss = total / len(batches)").add(2, "dist.all_reduce(loss)").add(2, "loss /= dist.get_world_size()");
  add_gradients(drawn, 2, to);
  add_clipping(drawn, 2, to);
  add_optimizer_step(drawn, 2, to);
}

void add_pipe_steps(const Case& drawn, Lines& to) {
  const std::string& count = drawn.at("accumulation");
  const bool grows = is_on(drawn, "grows"), told = is_on(drawn, "told");
  const int half = std::stoi(drawn.at("steps")) / 2, more = 2 * std::stoi(count);
  to.add_if(told, 0, "told = []  # losses");
  to.add(0, fmt::format("for step in range({}):", drawn.at("steps")));
  if (is_on(drawn, "resume")) add_resume(drawn, to);
  if (drawn.at("look") != "off") add_look(drawn, to);
  if (is_on(drawn, "evaluate")) add_pipe_evaluation(drawn, to);
  if (grows)
    to.add(1, fmt::format("if step == {} and not PLAIN:", half))
        .add(2, fmt::format("net.set_train_batch_size({})", kInMicroBatch * more * (has_replicas(drawn) ? 2 : 1)))
        .add(1, fmt::format("count = {} if step < {} else {}", count, half, more));
  const bool one = count == "1" && !grows && !told;
  if (!one) to.add(1, fmt::format("batches = [batch(step, micro) for micro in range({})]", grows ? "count" : count));
  to.add(1, "if PLAIN:");
  add_step_by_hand(drawn, to);
  to.add(1, "else:").add(2, fmt::format("loss = net.train_batch(iter({}))", one ? "[batch(step, 0)]" : "batches"));
  to.add_if(told, 1, "told.append(loss)");
  to.add(1, "print(f\"rank {dist.get_rank()} step {step}: loss {loss.item():.9g}\")");
}

// A bare model gets the weights that the pipeline saved layer by layer.
void add_gathering_of_layers(const Case& drawn, Lines& to) {
  to.add(0, folder_of_state()).add(0, "if not PLAIN:");
  to.add(1, "net.save_checkpoint(FOLDER, tag=\"last\")")
      .add(1, "dist.barrier()")
      .add(1, "bare = " + whole_of(drawn, "3"));
  to.add(1, is_sequence(drawn) ? "for i, layer in enumerate(bare):" : "for i, layer in enumerate(bare.calls):");
  const bool functions = is_on(drawn, "functions");
  to.add_if(functions, 2, "if isinstance(layer, nn.Module):");
  to.add(2 + int(functions), "file, = glob.glob(f\"{FOLDER}/last/layer_{i:02d}-*model_states.pt\")");
  to.add(2 + int(functions), "layer.load_state_dict(torch.load(file))");
}

// Its forward pass uses what the last step left: each rank's layers, on numbers by chance.
void add_pipe_end(const Case& drawn, Lines& to) {
  const std::string x = fmt::format("batch({}, 0)[0]", drawn.at("steps"));
  if (drawn.at("gather") != "off") {
    add_gathering_of_layers(drawn, to);
    to.add(0, fmt::format("(model if PLAIN else bare)({})", x));
  } else {
    if (drawn.at("recompute") != "off") to.add(0, "if not PLAIN:").add(1, "net.module.set_checkpoint_interval(0)");
    std::string h = fmt::format("torch.randn({}, {}){}", kInMicroBatch, drawn.at("width"),
                                casts_by_hand(drawn) ? ".bfloat16()" : "");
    if (drawn.at("passed") == "pair") h = fmt::format("({0}, {0})", h);
    if (drawn.at("passed") == "tokens") h = fmt::format("({}, {})", h, x);
    const std::string given = fmt::format("{} if PLAIN or net.is_first_stage() else {}", x, h);
    if (!casts_by_hand(drawn) && !passes_two(drawn)) {
      to.add(0, fmt::format("(model if PLAIN else net.module)({})", given));
    } else {
      to.add(0, "x = " + given);
      to.add(0, casts_by_hand(drawn) ? "by_hand(model, x) if PLAIN else net.module(x)"
                                     : "model(x) if PLAIN else net.module(x)");
    }
  }
  // The recorder sees weights that a module uses.
  if (is_on(drawn, "told"))
    to.add(0, "losses = nn.PReLU(len(told))")
        .add(0, "losses.weight.data = torch.stack([loss.reshape(()) for loss in told])")
        .add(0, "losses(torch.zeros(1, len(told)))");
  to.add(0, "dist.destroy_process_group()");
}

}  // namespace

void add_pipe_program(const Case& drawn, Lines& to) {
  add_pipe_imports(drawn, to);
  add_embedding(drawn, to);
  add_block_layer(drawn, to);
  add_head_layer(drawn, to);
  add_layers(drawn, to);
  add_whole(drawn, to);
  add_data_of_pipe(drawn, to);
  add_config(drawn, to);
  add_pipe_build(drawn, to);
  add_pipe_steps(drawn, to);
  add_pipe_end(drawn, to);
}

}  // namespace seeksim::harness::torch
