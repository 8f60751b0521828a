// A drawn case with DeepSpeed's expert layer as a program: the layer by hand, in which each rank has all experts, the
// model, and its steps.
#include <fmt/format.h>

#include "harness/torch/program/script.h"

namespace seeksim::harness::torch {
namespace {

constexpr int kTokens = 2;  // of a sample

bool is_top2(const Case& drawn) { return drawn.at("top") == "2"; }
bool is_split(const Case& drawn) { return drawn.at("made_by") == "script" && drawn.at("expert_groups") != "off"; }
bool has_groups(const Case& drawn) { return drawn.at("optimizer") == "groups" || is_split(drawn); }
// How many tokens an expert takes, beside what all of them are for it.
std::string factor_of(const Case& drawn) {
  const std::string& room = drawn.at("room");
  return room == "wide" ? drawn.at("of") + ".0" : room == "least" ? "0.25" : "1.0";
}
int least_of(const Case& drawn) { return drawn.at("room") == "least" ? 2 : 0; }

void add_moe_imports(const Case& drawn, Lines& to) {
  to.add_if(drawn.at("accumulates") == "coalesced", 0, "import contextlib");
  to.add_if(is_on(drawn, "resume") || drawn.at("look") != "off", 0, "import os");
  to.add(0, "import sys").add(0, "import deepspeed").add(0, "import torch");
  to.add(0, "import torch.distributed as dist").add(0, "import torch.nn as nn");
  to.add(0, "import torch.nn.functional as F").add(0, "from deepspeed.moe.layer import MoE");
  to.add(0, "from deepspeed.moe.sharded_moe import MOELayer");
  if (is_split(drawn))
    to.add(0, "from deepspeed.moe.utils import split_params_into_different_moe_groups_for_optimizer as split");
  to.add_if(drawn.at("recompute") != "off", 0, "from torch.utils.checkpoint import checkpoint");
  to.gap().add(0, "PLAIN = \"--plain\" in sys.argv");
  to.add(0, fmt::format("WIDTH, EXPERTS, TOP = {}, {}, {}", drawn.at("width"), drawn.at("of"), drawn.at("top")));
}

// Which tokens each expert takes, in their order, and how many it may take.
void add_queues(const Case& drawn, Lines& to) {
  const std::string& room = drawn.at("room");
  to.add(2, is_top2(drawn) ? "chosen = torch.cat([first, second])" : "chosen = first");
  if (room == "all") {
    to.add(2, "room = int(chosen.bincount().max())");
  } else {
    // TOP times as many, rounded up.
    to.add(2, fmt::format("room = max(-int(-len(h) * {} * TOP // EXPERTS), {})", factor_of(drawn), least_of(drawn)));
  }
  if (is_top2(drawn)) {
    to.add(2, "queues = [(chosen == i).nonzero().flatten()[:room] % len(h) for i in range(EXPERTS)]");
  } else if (room == "all") {
    to.add(2, "queues = [(chosen == i).nonzero().flatten() for i in range(EXPERTS)]");
  } else {
    to.add(2, "best = F.one_hot(chosen, EXPERTS).topk(min(room, len(h)), 0)[1]  # of equal ones, which torch takes");
    to.add(2, "queues = [best[:, i][chosen[best[:, i]] == i].sort()[0] for i in range(EXPERTS)]");
  }
}

void add_layer_by_hand(const Case& drawn, Lines& to) {
  const bool residual = is_on(drawn, "residual");
  to.gap().add(0, "class ByHand(nn.Module):  # with all experts; those of this rank have DeepSpeed's names");
  to.add(1, "def __init__(self, own):").add(2, "super().__init__()");
  to.add(2, "moe = self.deepspeed_moe = nn.Module()").add(2, "moe.gate, moe.experts = nn.Module(), nn.Module()");
  to.add(2, "moe.gate.wg = nn.Linear(WIDTH, EXPERTS, bias=False)");
  to.add(2, "moe.experts.deepspeed_experts = nn.Module()").add(2, "for i in range(EXPERTS):");
  to.add(3, "name = str(i - own[0]) if i in own else f\"elsewhere{i}\"");
  to.add(3, "moe.experts.deepspeed_experts.add_module(name, Expert())");
  to.add_if(residual, 2, "self.mlp, self.coefficient = Expert(), nn.Linear(WIDTH, 2)");
  to.gap().add(1, "def forward(self, x):").add(2, "h = x.reshape(-1, WIDTH)");
  to.add(2, "logits = F.linear(h.float(), self.deepspeed_moe.gate.wg.weight.float())");
  to.add(2, "gates = logits.softmax(1)").add(2, "first = gates.argmax(1)");
  to.add_if(is_top2(drawn), 2, "second = logits.masked_fill(F.one_hot(first, EXPERTS).bool(), -torch.inf).argmax(1)");
  to.add(2, "share = F.one_hot(first, EXPERTS).float().mean(0)");
  to.add(2, "aux = (gates.mean(0) * share).sum() * EXPERTS");
  add_queues(drawn, to);
  to.add(2, "kept = torch.zeros_like(gates)")
      .add(2, "for i, tokens in enumerate(queues):")
      .add(3, "kept[tokens, i] = 1");
  to.add(2, "weights = gates * kept");
  to.add_if(is_top2(drawn), 2, "weights = weights / weights.sum(1, keepdim=True).clamp(min=2.0**-23)");
  to.add(2, "mixed = torch.zeros(h.shape)");
  to.add(2, "experts = list(self.deepspeed_moe.experts.deepspeed_experts.children())");
  to.add(2, "for i, tokens in enumerate(queues):");
  to.add(3, "rows = torch.cat([h[tokens], h.new_zeros(room - len(tokens), WIDTH)])");
  to.add(3, "out = experts[i](rows[None, None])[0, 0, : len(tokens)]");
  to.add(3, "mixed = mixed.index_add(0, tokens, out * weights[tokens, i].unsqueeze(1))");
  to.add(2, "y = mixed.to(h.dtype).reshape(x.shape)");
  if (residual)
    to.add(2, "other, parts = self.mlp(x), self.coefficient(x).softmax(-1)")
        .add(2, "y = y * parts[..., 0:1] + other * parts[..., 1:]");
  to.add(2, "return y, aux, None");
}

// Which experts of a block a rank has.
void add_places(const Case& drawn, Lines& to) {
  const std::string& ep = drawn.at("ep");
  to.gap().add(0, "def ranks_of(i):  # that share the experts of block i");
  to.add(1, is_on(drawn, "mixed") ? fmt::format("return {} if i == 0 else 1", ep) : "return " + ep);
  to.gap().add(0, "def own(i):  # the numbers of its experts that this rank has");
  to.add(1, drawn.at("order") == "data" ? "place = dist.get_rank() // (dist.get_world_size() // ranks_of(i))"
                                        : "place = dist.get_rank() % ranks_of(i)");
  to.add(1, "here = EXPERTS // ranks_of(i)").add(1, "return range(place * here, place * here + here)");
  to.gap().add(0, "def numbered(i, block):  # experts of a rank, with their numbers among all");
  to.add(1, "experts = block.moe.deepspeed_moe.experts.deepspeed_experts.children()");
  to.add(1, "return dict(enumerate(experts, 0 if PLAIN else own(i)[0]))");
}

void add_block_class(const Case& drawn, Lines& to) {
  const std::string& room = drawn.at("room");
  to.gap().add(0, "def hidden(name):  # a number that a pass leaves in a layer is recorded as a weight of it");
  to.add(1, "return property(lambda self: self.__dict__[name][0],");
  to.add(1, "                lambda self, value: self.__dict__.update({name: [value]}))");
  to.add(0, "MOELayer.l_aux, MOELayer.exp_counts = hidden(\"aux\"), hidden(\"counts\")");
  to.gap().add(0, "class Expert(nn.Sequential):").add(1, "def __init__(self):");
  to.add(2, "super().__init__(nn.Linear(WIDTH, 12), nn.Tanh(), nn.Linear(12, WIDTH))");
  add_layer_by_hand(drawn, to);
  add_places(drawn, to);
  to.gap().add(0, "class Block(nn.Module):").add(1, "def __init__(self, i):").add(2, "super().__init__()");
  to.add_if(is_on(drawn, "norm"), 2, "self.norm = nn.LayerNorm(WIDTH)");
  to.add(2, "self.moe = ByHand(own(i)) if PLAIN else MoE(");
  to.add(3, "WIDTH, Expert(), num_experts=EXPERTS, ep_size=ranks_of(i), k=TOP, use_rts=False,");
  to.add(3, fmt::format("top2_2nd_expert_sampling=False, {}{}",
                        room == "all" ? "drop_tokens=False"
                                      : fmt::format("capacity_factor={0}, eval_capacity_factor={0}, min_capacity={1}",
                                                    factor_of(drawn), least_of(drawn)),
                        is_on(drawn, "residual") ? ", use_residual=True" : ""));
  to.add(2, ")");
  to.gap().add(1, "def forward(self, h):");
  to.add(2, "self.moe.deepspeed_moe.gate.wg(h)  # a weight that nothing calls is not recorded");
  to.add(2, is_on(drawn, "norm") ? "y, aux, _ = self.moe(self.norm(h))" : "y, aux, _ = self.moe(h)");
  to.add(2, "return h + y, aux");
}

void add_freezing_of_model(const Case& drawn, Lines& to) {
  const std::string& frozen = drawn.at("frozen");
  if (frozen == "block") to.add(2, "self.blocks[0].requires_grad_(False)");
  if (frozen == "gate") to.add(2, "self.blocks[0].moe.deepspeed_moe.gate.requires_grad_(False)");
  if (frozen == "bias")
    to.add(2, "for name, p in self.named_parameters():").add(3, "p.requires_grad_(\"bias\" not in name)");
  if (frozen == "expert")
    to.add(2, "for number, expert in numbered(0, self.blocks[0]).items():").add(3, "expert.requires_grad_(number > 0)");
}

void add_whole_model(const Case& drawn, Lines& to) {
  const bool tokens = drawn.at("inputs") == "tokens";
  const std::string& recompute = drawn.at("recompute");
  to.gap().add(0, "class Model(nn.Module):").add(1, "def __init__(self):").add(2, "super().__init__()");
  to.add_if(tokens, 2, fmt::format("self.embed = nn.Embedding({}, WIDTH)", kWords));
  to.add(2, fmt::format("self.blocks = nn.ModuleList([Block(i) for i in range({})])", drawn.at("depth")));
  to.add(2, fmt::format("self.head = nn.Linear(WIDTH, {})", kWords));
  to.add_if(is_on(drawn, "tied"), 2, "self.head.weight = self.embed.weight");
  add_freezing_of_model(drawn, to);
  to.gap().add(1, "def forward(self, x):").add(2, tokens ? "h, total = self.embed(x), 0" : "h, total = x, 0");
  to.add(2, is_on(drawn, "reused") ? "for block in [*self.blocks, self.blocks[0]]:" : "for block in self.blocks:");
  to.add(3, recompute == "off" ? "h, aux = block(h)"
                               : fmt::format("h, aux = block(h) if PLAIN else checkpoint(block, h, use_reentrant={})",
                                             recompute == "on" ? "False" : "True"));
  to.add(3, "total = total + aux").add(2, "return self.head(h), total");
}

void add_first_weights(Lines& to) {
  to.gap().add(0, "def draw(model, seed):  # first weights, whoever has which expert");
  to.add(1, "torch.manual_seed(seed)").add(1, "for name, p in model.named_parameters():");
  to.add(2, "if \"deepspeed_experts\" not in name:").add(3, "nn.init.uniform_(p, -0.5, 0.5)");
  to.add(1, "for i, block in enumerate(model.blocks):");
  to.add(2, "for number, expert in numbered(i, block).items():");
  to.add(3, "torch.manual_seed(seed * 100 + i * 10 + number)").add(3, "for p in expert.parameters():");
  to.add(4, "nn.init.uniform_(p, -0.5, 0.5)");
}

void add_batches(const Case& drawn, Lines& to) {
  to.gap().add(0, "def batch(step, micro):");
  to.add(1, "generator = torch.Generator().manual_seed((step * 100 + micro) * 64 + dist.get_rank())");
  if (drawn.at("inputs") == "tokens")
    to.add(1, fmt::format("x = torch.randint(0, {}, ({}, {}), generator=generator)", kWords, kInMicroBatch, kTokens));
  else
    to.add(1, fmt::format("x = torch.randn({}, {}, WIDTH, generator=generator){}", kInMicroBatch, kTokens,
                          narrow_type(drawn)));
  to.add(1, fmt::format("return x, torch.randint(0, {}, ({},), generator=generator)", kWords, kInMicroBatch * kTokens));
  if (!casts_by_hand(drawn)) return;
  to.gap().add(0, "def by_hand(model, x):");
  to.add(1, fmt::format("weights = {{name: p{} for name, p in model.named_parameters()}}", narrow_type(drawn)));
  to.add(1, "return torch.func.functional_call(model, weights, (x,))");
}

std::string call_of(const Case& drawn, const std::string& x) {
  return casts_by_hand(drawn) ? fmt::format("by_hand(model, {0}) if PLAIN else net({0})", x)
                              : fmt::format("net({})", x);
}

void add_optimizer_of_moe(const Case& drawn, Lines& to) {
  if (drawn.at("optimizer") == "groups") {
    to.add(1, "named = [(name, p) for name, p in net.named_parameters() if p.requires_grad]");
    to.add(1, "groups = [{\"params\": [p for name, p in named if \"head\" not in name], \"name\": \"body\"}]");
    to.add(1,
           "groups += [{\"params\": [p for name, p in named if \"head\" in name], \"name\": \"head\", \"lr\": 0.03}]");
  } else if (is_split(drawn)) {
    to.add(1, "groups = [{\"params\": [p for p in net.parameters() if p.requires_grad], \"name\": \"all\"}]");
  } else {
    to.add_if(drawn.at("frozen") != "off", 1, "trained = [p for p in net.parameters() if p.requires_grad]");
  }
  if (is_split(drawn))
    to.add(1, "if not PLAIN:")
        .add(2, drawn.at("expert_groups") == "small" ? "groups = split(groups, max_group_size=200)"
                                                     : "groups = split(groups)");
  std::string made = optimizer_of(drawn);
  for (const char* others : {"(net.parameters()", "(trained"}) {
    const std::size_t at = made.find(others);
    if (has_groups(drawn) && at != std::string::npos) made.replace(at, std::string(others).size(), "(groups");
  }
  to.add(1, "optimizer = " + made);
}

void add_moe_build(const Case& drawn, Lines& to) {
  to.gap().add(0, "def build(seed):").add(1, "net = model = Model()");
  to.add(1, is_on(drawn, "own_seeds")
                ? fmt::format("draw(model, seed if PLAIN or dist.get_rank() < {} else seed + 7)", drawn.at("ep"))
                : "draw(model, seed)");
  add_optimizer_of_moe(drawn, to);
  to.add_if(is_on(drawn, "schedule"), 1,
            "schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step))");
  to.add_if(scales_loss(drawn), 1, "scaler = torch.amp.GradScaler(\"cpu\", init_scale=2.0**10)");
  to.add(1, "if not PLAIN:")
      .add(2, fmt::format("net, _, _, _ = deepspeed.initialize({}model=model, {}, config=CONFIG)",
                          is_on(drawn, "schedule") ? "lr_scheduler=schedule, " : "", optimized_by(drawn)));
  to.add(1, "return " + names_of_objects(drawn));
  to.gap().add(0, "deepspeed.init_distributed(\"gloo\")").add(0, names_of_objects(drawn) + " = build(1)");
}

std::string loss_from(const std::string& logits, const std::string& y) {
  return fmt::format("F.cross_entropy({}.float().flatten(0, 1), {})", logits, y);
}

void add_moe_steps(const Case& drawn, Lines& to) {
  const std::string& count = drawn.at("accumulation");
  to.add_if(is_on(drawn, "evaluate"), 0, "told = []  # losses in eval mode");
  to.add(0, fmt::format("for step in range({}):", drawn.at("steps")));
  if (is_on(drawn, "resume")) add_resume(drawn, to);
  if (drawn.at("look") != "off") add_look(drawn, to);
  if (is_on(drawn, "evaluate")) {
    to.add(1, "net.eval()").add(1, "with torch.no_grad():").add(2, "x, y = batch(step, 90)");
    to.add(2, "logits, aux = " + call_of(drawn, "x")).add(2, "told.append(" + loss_from("logits", "y") + " + aux)");
    to.add(1, "net.train()");
  }
  add_step_of_zero(drawn, count == "1" ? "loss" : fmt::format("(loss / {})", count), to);
  to.add(1, "print(f\"rank {dist.get_rank()} step {step}: loss {loss.item():.9g}\")");
}

void add_moe_end(const Case& drawn, Lines& to) {
  to.add(0, call_of(drawn, fmt::format("batch({}, 0)[0]", drawn.at("steps"))));
  if (is_on(drawn, "evaluate"))  // The recorder sees weights that a module uses.
    to.add(0, "told = torch.stack(told)")
        .add(0, "dist.all_reduce(told)")
        .add(0, "losses = nn.PReLU(len(told))")
        .add(0, "losses.weight.data = told / dist.get_world_size()")
        .add(0, "losses(torch.zeros(1, len(told)))");
  to.add(0, "dist.destroy_process_group()");
}

}  // namespace

void add_loss_of_moe(const Case& drawn, int depth, Lines& to) {
  to.add(depth, "logits, aux = " + call_of(drawn, "x"));
  to.add(depth, "loss = " + loss_from("logits", "y") + " + 0.1 * aux");
}

void add_moe_program(const Case& drawn, Lines& to) {
  add_moe_imports(drawn, to);
  add_block_class(drawn, to);
  add_whole_model(drawn, to);
  add_first_weights(to);
  add_batches(drawn, to);
  add_config(drawn, to);
  add_moe_build(drawn, to);
  add_moe_steps(drawn, to);
  add_moe_end(drawn, to);
}

}  // namespace seeksim::harness::torch
