// A drawn case of torch's own pipelines as a program: the model of which each stage has a part, and its steps.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "harness/torch/program/script.h"
#include "harness/torch/program/stages.h"

namespace seeksim::harness::torch {

StagesShape shape_of(const Case& drawn) {
  StagesShape shape;
  const std::string& plan = drawn.at("plan");
  shape.ways = std::stoi(drawn.at("np")) / (drawn.at("data") == "off" ? 1 : 2);
  shape.local = plan == "gpipe" || plan == "1f1b" ? 1 : std::stoi(drawn.at("local"));
  shape.stages = shape.ways * shape.local;
  const std::string& batches = drawn.at("batches");
  shape.batches = batches == "twice"  ? shape.stages * 2
                  : batches == "odd"  ? shape.stages + 1
                  : batches == "half" ? std::max(1, shape.stages / 2)
                                      : shape.stages;
  shape.first_blocks = drawn.at("begins") == "embedding" ? 1 : 0;
  shape.depth = std::stoi(drawn.at("depth"));
  shape.blocks = (shape.stages - shape.first_blocks) * shape.depth;
  constexpr int kSamples = 4;  // of a micro-batch
  shape.samples = kSamples * shape.batches - (drawn.at("sizes") == "micro" ? 1 : 0);
  return shape;
}

namespace {

using Names = std::vector<std::string>;

constexpr int kStageWords = 11;  // and classes

bool has_words(const Case& drawn) { return drawn.at("inputs") == "tokens"; }
bool has_extra(const Case& drawn) { return drawn.at("extra") != "off"; }
bool is_narrow(const Case& drawn) { return drawn.at("precision") != "fp32"; }

// What else a stage gets and passes on: "", "other", "x".
std::string second_of(const Case& drawn) {
  const std::string& passed = drawn.at("passed");
  return passed == "tensor" ? "" : passed == "tokens" ? "x" : "other";
}

void add_block_parts(const Case& drawn, Lines& to) {
  const std::string& width = drawn.at("width");
  const std::string& shared = drawn.at("shared");
  to.add_if(is_on(drawn, "norm"), 2, fmt::format("self.norm = nn.LayerNorm({})", width));
  if (shared == "off")
    to.add(2, fmt::format("self.up, self.down = nn.Linear({0}, 20), nn.Linear(20, {0})", width));
  else if (shared == "weight")
    to.add(2, fmt::format("self.up, self.down = nn.Linear({0}, {0}), nn.Linear({0}, {0})", width))
        .add(2, "self.down.weight = self.up.weight");
  else
    to.add(2, fmt::format("self.up, self.down = (nn.Parameter(torch.randn({0}, {0}) * 0.3) for _ in range(2))", width))
        .add(2, "self.factor = nn.Parameter(torch.ones(1))");
  if (drawn.at("experts") != "0")
    to.add(2, fmt::format("self.gate = nn.Linear({}, 3)", width))
        .add(2, fmt::format("self.experts = nn.ModuleList([nn.Linear({0}, {0}) for _ in range(3)])", width));
  to.add_if(is_on(drawn, "unused"), 2, "self.unused = nn.Parameter(torch.zeros(3))");
  to.add_if(drawn.at("passed") == "own", 2, fmt::format("self.place = nn.Parameter(torch.randn({}))", width));
}

void add_stage_block(const Case& drawn, Lines& to) {
  const bool own = drawn.at("passed") == "own";
  to.gap().add(0, "class Block(nn.Module):").add(1, "def __init__(self):").add(2, "super().__init__()");
  add_block_parts(drawn, to);
  to.add(1, own ? "def forward(self, h, other):" : "def forward(self, h):");
  if (own) to.add(2, "h = h if other is None else h + other");
  const std::string in = is_on(drawn, "norm") ? "self.norm(h)" : "h";
  std::string out = drawn.at("shared") == "factor"
                        ? fmt::format("({} @ (self.up * self.factor)).tanh() @ (self.down * self.factor)", in)
                        : fmt::format("self.down(self.up({}).tanh())", in);
  if (is_on(drawn, "dropout")) out = fmt::format("F.dropout({}, 0.1, self.training)", out);
  const bool experts = drawn.at("experts") != "0";
  if (!experts && !own) {
    to.add(2, "return h + " + out);
    return;
  }
  to.add(2, "h = h + " + out);
  if (experts) {
    to.add(2, "weight, chosen = F.softmax(self.gate(h), -1).max(-1)").add(2, "mixed = torch.zeros_like(h)");
    to.add(2, "for i, expert in enumerate(self.experts):");
    to.add(3, "mixed = mixed.index_put((chosen == i,), expert(h[chosen == i]))");
    to.add(2, "h = h + mixed * weight.unsqueeze(-1)");
  }
  to.add(2, own ? "return h, self.place.tanh() + torch.zeros_like(h)" : "return h");
}

void add_hooks(const Case& drawn, Lines& to) {
  const std::string& hook = drawn.at("hook");
  to.add_if(hook == "weight", 2, "self.head.bias.register_hook(lambda gradient: gradient * 0.5)");
  to.add_if(hook == "after", 2, "self.head.bias.register_post_accumulate_grad_hook(halve)");
  if (hook == "module")
    to.add(2, "self.head.register_full_backward_hook(")
        .add(3, "lambda module, into, out: tuple(None if g is None else g * 0.5 for g in into)")
        .add(2, ")");
}

void add_whole_parts(const Case& drawn, const StagesShape& shape, Lines& to) {
  if (drawn.at("hook") == "after") to.gap().add(0, "def halve(p):").add(1, "p.grad *= 0.5");
  to.gap().add(0, "class Model(nn.Module):  # all of it, or the part of a stage");
  to.add(1, "def __init__(self, seed, stage=None):").add(2, "super().__init__()").add(2, "torch.manual_seed(seed)");
  to.add_if(has_words(drawn), 2, fmt::format("self.embed = nn.Embedding({}, {})", kStageWords, drawn.at("width")));
  to.add(2, fmt::format("self.blocks = nn.ModuleDict({{str(i): Block() for i in range({})}})", shape.blocks));
  // It is made last, so that what a stage leaves out changes no random number.
  const bool hooked = drawn.at("hook") != "off";
  to.add(2, fmt::format("self.head = nn.Linear({}, {}){}", drawn.at("width"), kStageWords,
                        hooked ? "" : " if stage in (None, STAGES - 1) else None"));
  add_hooks(drawn, to);
  const std::string& frozen = drawn.at("frozen");
  to.add_if(frozen == "block", 2, "self.blocks[\"0\"].requires_grad_(False)");
  if (frozen == "bias" || frozen == "body")
    to.add(2, "for name, p in self.named_parameters():")
        .add(3, fmt::format("p.requires_grad_({})", frozen == "bias" ? "\"bias\" not in name" : "\"head\" in name"));
  to.add_if(is_on(drawn, "buffer"), 2,
            "self.register_buffer(\"count\", torch.tensor(0) if stage in (None, STAGES - 1) else None)");
  to.add(2, "if stage is not None:");
  std::string place = shape.depth == 1 ? "int(i)" : fmt::format("int(i) // {}", shape.depth);
  if (shape.first_blocks != 0) place += " + 1";
  to.add(3, fmt::format("self.blocks = nn.ModuleDict({{i: b for i, b in self.blocks.items() if {} == stage}})", place));
  to.add_if(has_words(drawn), 3, "self.embed = self.embed if stage == 0 else None");
  to.add_if(hooked, 3, "self.head = self.head if stage == STAGES - 1 else None");
}

void add_whole_forward(const Case& drawn, Lines& to) {
  const std::string second = second_of(drawn), &passed = drawn.at("passed"), &extra = drawn.at("extra");
  const bool autocasts = drawn.at("precision") == "autocast", drops = is_on(drawn, "dropout");
  std::string arguments = second.empty() ? "h" : fmt::format("h, {}=None", second);
  if (has_extra(drawn)) arguments += ", gain=None";
  if (autocasts)
    to.gap()
        .add(1, "def forward(self, *args, **options):")
        .add(2, "with torch.autocast(\"cpu\", torch.bfloat16):")
        .add(3, "return self.run(*args, **options)");
  to.add(1, fmt::format("def {}(self, {}):", autocasts ? "run" : "forward", arguments));
  to.add_if(passed == "tokens", 2, "x = h if x is None else x");
  to.add_if(has_words(drawn), 2, "h = h if self.embed is None else self.embed(h)");
  to.add_if(passed == "pair", 2, "other = h if other is None else other");
  to.add(2, drops ? "for i, block in self.blocks.items():" : "for block in self.blocks.values():");
  to.add_if(drops, 3, "torch.manual_seed(NOW[0] * 100 + int(i))  # of the step and the micro-batch");
  const std::string with = passed == "own" ? "h, other" : "h";
  const std::string call = drawn.at("recompute") == "off"
                               ? fmt::format("block({})", with)
                               : fmt::format("block({0}) if PLAIN else checkpoint(block, {0}, use_reentrant={1})", with,
                                             drawn.at("recompute") == "reentrant" ? "True" : "False");
  for (int times = is_on(drawn, "twice") ? 2 : 1; times > 0; --times) to.add(3, fmt::format("{} = {}", with, call));
  to.add_if(has_extra(drawn), 3, extra == "columns" ? "h = h * gain.t()" : "h = h * gain");
  const std::string on = second.empty() ? "h" : "h, " + second;
  const bool counts = is_on(drawn, "buffer");
  std::string head = passed == "pair" || passed == "own" ? "self.head(h + other)" : "self.head(h)";
  if (passed == "tokens") head += fmt::format(" + (x.unsqueeze(-1) == torch.arange({})) * 0.1", kStageWords);
  if (!counts) {
    to.add(2, fmt::format("return {} if self.head is None else {}", second.empty() ? on : '(' + on + ')', head));
    return;
  }
  to.add(2, "if self.head is None:").add(3, "return " + on);
  to.add(2, "if self.training:").add(3, "self.count.add_(1)");
  to.add(2, "h = h * (1 + self.count * 0.01)").add(2, "return " + head);
}

std::string loss_name(const Case& drawn) {
  return is_narrow(drawn) || drawn.at("scaled") != "schedule" ? "loss_of" : "F.cross_entropy";
}

void add_stage_data(const Case& drawn, const StagesShape& shape, Lines& to) {
  const std::string& extra = drawn.at("extra");
  const std::string& width = drawn.at("width");
  const char* const narrow = drawn.at("precision") == "bf16" ? ".bfloat16()" : "";
  to.gap().add(0, "def batch(step):");
  to.add(1, fmt::format("generator = torch.Generator().manual_seed(step * 64{})",
                        drawn.at("data") == "off" ? "" : " + mesh.get_local_rank(\"replica\")"));
  const std::string x =
      has_words(drawn) ? fmt::format("torch.randint(0, {}, ({},), generator=generator)", kStageWords, shape.samples)
                       : fmt::format("torch.randn({}, {}, generator=generator){}", shape.samples, width, narrow);
  const std::string y = fmt::format("torch.randint(0, {}, ({},), generator=generator)", kStageWords, shape.samples);
  const std::map<std::string, std::string> sizes = {{"samples", fmt::format("{}, 1", shape.samples)},
                                                    {"columns", fmt::format("{}, {}", width, shape.samples)},
                                                    {"whole", width}};
  const char* const last = !has_extra(drawn) ? "" : extra == "number" ? ", 0.5" : ", gain";
  const bool in_a_line = x.size() + y.size() < 100;
  to.add_if(!in_a_line, 1, "x = " + x);
  if (has_extra(drawn) && extra != "number")
    to.add(1, fmt::format("gain = torch.rand({}, generator=generator){} + 0.5", sizes.at(extra), narrow));
  to.add(1, fmt::format("return {}, {}{}", in_a_line ? x : "x", y, last));
  if (loss_name(drawn) == "F.cross_entropy") return;
  const std::string& scaled = drawn.at("scaled");
  const char* const logits = is_narrow(drawn) ? "logits.float()" : "logits";
  to.gap().add(0, "def loss_of(logits, y):");
  to.add(1, scaled == "sum"
                ? fmt::format("return F.cross_entropy({}, y, reduction=\"sum\") / {}", logits, shape.samples)
                : fmt::format("return F.cross_entropy({}, y){}", logits, scaled == "loss" ? " / BATCHES" : ""));
}

// What dropout goes by.
void add_seeds(const Case& drawn, Lines& to) {
  if (!is_on(drawn, "dropout")) return;
  to.gap().add(0, "NOW = [0]").gap().add(0, "@contextlib.contextmanager").add(0, "def seeded(stage):");
  to.add(1, "NOW[0] = step * 20 + stage.microbatch_index").add(1, "yield");
}

}  // namespace

void add_stages_program(const Case& drawn, Lines& to) {
  const StagesShape shape = shape_of(drawn);
  add_stages_imports(drawn, shape, to);
  add_stage_block(drawn, to);
  add_whole_parts(drawn, shape, to);
  add_whole_forward(drawn, to);
  add_stage_data(drawn, shape, to);
  add_seeds(drawn, to);
  add_stages_build(drawn, shape, loss_name(drawn), to);
  add_stages_steps(drawn, shape, loss_name(drawn), to);
}

}  // namespace seeksim::harness::torch
