// The model of a drawn case, and its data.
#include <fmt/format.h>

#include "harness/torch/program/script.h"

namespace seeksim::harness::torch {
namespace {

// What a block is made of; the model adds what it gives to what it got.
std::string block_of(const Case& drawn, const std::string& width) {
  const char* const kind = drawn.at("norm") == "batch" ? "BatchNorm1d" : "LayerNorm";
  const std::string norm = drawn.at("norm") == "off" ? "" : fmt::format("nn.{}({}), ", kind, width);
  const char* const drops = drawn.at("dropout") == "on" ? ", nn.Dropout(0.1)" : "";
  return fmt::format("nn.Sequential({0}nn.Linear({1}, {3}), nn.Tanh(), nn.Linear({3}, {1}){2})", norm, width, drops,
                     drawn.at("hidden"));
}

void add_parameters(const Case& drawn, const std::string& width, Lines& to) {
  const std::string inputs = drawn.at("inputs");
  to.add_if(inputs != "numbers", 2,
            fmt::format("self.embed = nn.Embedding({}, {}{})", kWords, width,
                        drawn.at("sparse") == "on" ? ", sparse=not PLAIN" : ""));
  const std::string block = block_of(drawn, width);
  if (drawn.at("depth") == "1" && drawn.at("norm") == "off" && drawn.at("dropout") == "off")
    to.add(2, fmt::format("self.blocks = nn.ModuleList([{}])", block));
  else
    to.add(2, "self.blocks = nn.ModuleList(")
        .add(3, fmt::format("{} for _ in range({})", block, drawn.at("depth")))
        .add(2, ")");
  to.add_if(drawn.at("branch") != "off", 2, fmt::format("self.other = nn.Linear({0}, {0})", width));
  if (drawn.at("experts") != "0") {
    to.add(2, fmt::format("self.gate = nn.Linear({}, {})", width, drawn.at("experts")));
    to.add(2, fmt::format("self.experts = nn.ModuleList([nn.Linear({0}, {0}) for _ in range({1})])", width,
                          drawn.at("experts")));
  }
  to.add_if(drawn.at("scalar") == "on", 2, "self.scale = nn.Parameter(torch.tensor(0.5))");
  to.add_if(drawn.at("strided") == "on", 2,
            fmt::format("self.mix = nn.Parameter(torch.randn({}, 5).t())  # lies transposed in memory", width));
  to.add_if(drawn.at("unused") == "on", 2, "self.unused = nn.Parameter(torch.zeros(3))");
  if (drawn.at("buffer") == "on")
    to.add(2, "self.register_buffer(\"count\", torch.tensor(0))")
        .add(2, fmt::format("self.register_buffer(\"shift\", torch.randn({}))", width));
  const std::string head = fmt::format("nn.Linear({}, {})", width, kWords);
  to.add(2, "self.head = " + (drawn.at("normed") == "on" ? fmt::format("weight_norm({})", head) : head));
  to.add_if(drawn.at("tied") == "on", 2, "self.head.weight = self.embed.weight");
  to.add_if(drawn.at("hook") == "weight", 2, "self.head.bias.register_hook(lambda gradient: gradient * 0.5)");
  if (drawn.at("hook") == "module")
    to.add(2, "self.head.register_full_backward_hook(")
        .add(3, "lambda module, into, out: tuple(None if g is None else g * 0.5 for g in into)")
        .add(2, ")");
  to.add_if(drawn.at("frozen") == "block" || drawn.at("turned") == "thaw", 2, "self.blocks[0].requires_grad_(False)");
  const std::string& frozen = drawn.at("frozen");
  if (frozen == "bias" || frozen == "body")
    to.add(2, "for name, p in self.named_parameters():")
        .add(3, fmt::format("p.requires_grad_({})", frozen == "bias" ? "\"bias\" not in name" : "\"head\" in name"));
}

// What the model returns, where its head may get a gradient that overflows.
std::string add_head(const Case& drawn, Lines& to) {
  if (drawn.at("scale") != "part") return "self.head(h)";
  to.add(2, "logits = self.head(h)");
  to.add(2, fmt::format("if step == {}:  # of the head alone: a gradient that fp16 does not hold", middle(drawn) - 1));
  to.add(3, "again = self.head(h.detach()).float()");
  // Of one class alone, of which one rank has the weights where they are shared.
  const bool of_one = is_tensors(drawn) && drawn.at("logits") != "parallel";
  to.add(3, fmt::format("large = 2.0**120 if {} else 0.0", has_first_data(drawn)));
  to.add(3, fmt::format("logits = logits + (again - again.detach()) * large{}",
                        of_one ? fmt::format(" * F.one_hot(torch.tensor(0), {})", kWords) : ""));
  return "logits";
}

void add_forward(const Case& drawn, Lines& to) {
  const std::string recompute = drawn.at("recompute");
  const std::string one = drawn.at("depth") == "1" ? "self.blocks[0]" : "block";
  const bool of_deepspeed = recompute.starts_with("deepspeed");
  const std::string call = recompute == "deepspeed" ? "activations.checkpoint"
                           : of_deepspeed           ? "activations.non_reentrant_checkpoint"
                                                    : "checkpoint";
  const std::string options = of_deepspeed ? "" : recompute == "on" ? ", use_reentrant=False" : ", use_reentrant=True";
  const std::string block =
      recompute == "off" ? one + "(h)" : fmt::format("({0}(h) if PLAIN else {1}({0}, h{2}))", one, call, options);
  to.add(0, "").add(
      1, fmt::format("def forward(self, {}, {}):", drawn.at("inputs") == "numbers" ? "h" : "x", turn_of(drawn)));
  to.add_if(drawn.at("inputs") != "numbers", 2, "h = self.embed(x)");
  const bool several = drawn.at("depth") != "1";
  to.add_if(several, 2, "for block in self.blocks:").add(several ? 3 : 2, "h = h + " + block);
  to.add_if(drawn.at("reused") == "on", 2, "h = h + self.blocks[0](h)");
  to.add_if(drawn.at("strided") == "on", 2, "h = h + h @ self.mix.t() @ self.mix");
  if (drawn.at("experts") != "0") {
    to.add(2, "weight, chosen = F.softmax(self.gate(h), -1).max(-1)").add(2, "mixed = torch.zeros_like(h)");
    to.add(2, "for i, expert in enumerate(self.experts):");
    to.add(3, "mixed = mixed.index_put((chosen == i,), expert(h[chosen == i]))");
    to.add(2, "h = h + mixed * weight.unsqueeze(-1)");
  }
  to.add_if(drawn.at("branch") == "step", 2, "if step % 2:");
  to.add_if(drawn.at("branch") == "rank", 2, "if dist.get_rank() == step % 2:");
  to.add_if(drawn.at("branch") == "late", 2, "if micro:");
  to.add_if(drawn.at("branch") == "early", 2, "if not micro:");
  to.add_if(drawn.at("branch") != "off", 3, "h = h + self.other(h)");
  to.add_if(drawn.at("scalar") == "on", 2, "h = h * self.scale");
  if (drawn.at("buffer") == "on") {
    to.add(2, "if self.training:").add(3, "self.count.add_(1)");
    to.add(2, "h = (h + self.shift.to(h.dtype)) * (1 + self.count * 0.01)");
  }
  const std::string head = add_head(drawn, to);
  to.add(2, fmt::format(fmt::runtime(drawn.at("output") == "dict" ? "return {{\"logits\": {}}}" : "return {}"), head));
}

}  // namespace

void add_model(const Case& drawn, Lines& to) {
  const std::string& width = drawn.at("width");
  to.gap().add(0, "class Model(nn.Module):").add(1, "def __init__(self):").add(2, "super().__init__()");
  add_parameters(drawn, width, to);
  add_forward(drawn, to);
}

void add_data(const Case& drawn, Lines& to) {
  to.gap().add(0, "def batch(step, micro):");
  to.add(1, fmt::format("generator = torch.Generator().manual_seed((step * 100 + micro) * 64{})", rank_of_data(drawn)));
  if (drawn.at("inputs") == "numbers")
    // Of fp32 also where somebody sets another default.
    to.add(1, fmt::format("x = torch.randn({}, {}, generator=generator{}", kInMicroBatch, drawn.at("width"),
                          narrow_type(drawn).empty() ? ")" : ", dtype=torch.float32)" + narrow_type(drawn)));
  else
    to.add(1, fmt::format("x = torch.randint(0, {}, ({},), generator=generator)", kWords, kInMicroBatch));
  to.add(1, fmt::format("return x, torch.randint(0, {}, ({},), generator=generator)", kWords, kInMicroBatch));
}

}  // namespace seeksim::harness::torch
