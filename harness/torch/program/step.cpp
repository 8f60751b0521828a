// The parts of a drawn program's step: its loss, gradients averaged by hand, their norm, the optimizer.
#include <fmt/format.h>

#include "harness/torch/program/script.h"

namespace seeksim::harness::torch {

void add_gradients(const Case& drawn, int depth, Lines& to) {
  to.add(depth++, "for p in model.parameters():");
  if (drawn.at("branch") == "rank") {
    to.add(depth, "used = torch.tensor(float(p.grad is not None))").add(depth, "dist.all_reduce(used)");
    to.add(depth, "if p.grad is None and used:").add(depth + 1, "p.grad = torch.zeros_like(p)");
  }
  // Nothing else leaves a parameter without a gradient.
  const bool all_used = drawn.at("branch") == "off" && drawn.at("unused") == "off" && drawn.at("frozen") == "off" &&
                        drawn.at("turned") == "off";
  const char* const summed =
      is_tensors(drawn) ? "dist.all_reduce(p.grad, group=mesh.get_group(\"data\"))" : "dist.all_reduce(p.grad)";
  const char* const divided = is_tensors(drawn) ? "p.grad /= mesh.size(0)" : "p.grad /= dist.get_world_size()";
  const std::string type = compressed_type(drawn);
  const auto add_average = [&](int at) {
    if (type.empty())
      to.add(at, summed).add(at, divided);
    else
      to.add(at, fmt::format("small = p.grad.to(torch.{}) / dist.get_world_size()", type))
          .add(at, "dist.all_reduce(small)")
          .add(at, "p.grad.copy_(small)");
  };
  if (all_used) return add_average(depth);
  const bool trained_alone = drawn.at("frozen") != "off" || is_on(drawn, "reduce_unused") ||
                             (drawn.at("turned") == "freeze" && !has_flat_copies(drawn));
  if (fills_with_zeros(drawn))
    to.add(depth, trained_alone ? "if p.grad is None and p.requires_grad:" : "if p.grad is None:")
        .add(depth + 1, "p.grad = torch.zeros_like(p)  # as this wrapper does");
  to.add(depth, "if p.grad is not None:");
  add_average(depth + 1);
}

void add_loss(const Case& drawn, int depth, Lines& to) {
  if (is_moe(drawn)) return add_loss_of_moe(drawn, depth, to);
  const std::string turn = turn_of(drawn);
  const std::string call = casts_by_hand(drawn)
                               ? fmt::format("(by_hand(model, x, {0}) if PLAIN else net(x, {0}))", turn)
                               : fmt::format("net(x, {})", turn);
  std::string logits = call + (drawn.at("output") == "dict" ? "[\"logits\"]" : "");
  if (drawn.at("precision") != "fp32") logits += ".float()";
  const bool to_fp16 = drawn.at("precision") == "fp16";
  if (drawn.at("precision") == "autocast" || to_fp16) {
    // Others have it as their option, and one inside theirs would take its place.
    const bool by_option = !has_own_loop(drawn) || is_deepspeed(drawn);
    to.add(depth, fmt::format("with torch.autocast(\"cpu\", dtype=torch.{}){}:", to_fp16 ? "float16" : "bfloat16",
                              by_option ? " if PLAIN else contextlib.nullcontext()" : ""));
    ++depth;
  }
  to.add_if(drawn.at("forwards") == "spare", depth, call + "  # nothing uses it");
  const bool apart = drawn.at("forwards") == "apart";
  if (drawn.at("forwards") != "2" && !apart) {
    to.add(depth, fmt::format("loss = F.cross_entropy({}, y)", logits));
  } else {
    to.add(depth, fmt::format("{} = F.cross_entropy({}, y)", apart ? "first" : "loss", logits))
        .add(depth, drawn.at("accumulation") == "1" ? "x, y = batch(step, 50)" : "x, y = batch(step, 50 + micro)");
    to.add(depth, fmt::format("loss = {}F.cross_entropy({}, y)", apart ? "" : "loss + ", logits));
  }
  if (drawn.at("scale") == "spike")
    to.add(depth, fmt::format("if step == {} and {}{}:", middle(drawn) - 1, has_first_data(drawn),
                              drawn.at("accumulation") == "1" ? "" : " and micro == 0"))
        .add(depth + 1, "loss = loss * 2.0**120  # a gradient that fp16 does not hold");
}

void add_clipping(const Case& drawn, int depth, Lines& to) {
  if (!is_on(drawn, "clip")) return;
  to.add_if(scales_loss(drawn), depth, "scaler.unscale_(optimizer)");
  const std::string& by = drawn.at("clip_by");
  const std::string norm = by == "2" ? "0.2" : fmt::format("0.2, float(\"{}\")", by);
  if (by == "value")
    to.add(depth, "nn.utils.clip_grad_value_(net.parameters(), 0.01)");
  else if (drawn.at("wrapper") == "fsdp1")
    to.add(depth,
           fmt::format("nn.utils.clip_grad_norm_(net.parameters(), {0}) if PLAIN else net.clip_grad_norm_({0})", norm));
  else if (drawn.at("clips") != "norm")
    add_clipping_of_tensors(drawn, depth, to);
  else
    to.add(depth, fmt::format("nn.utils.clip_grad_norm_(net.parameters(), {})", norm));
}

void add_optimizer_step(const Case& drawn, int depth, Lines& to) {
  const bool waits = has_spike(drawn) && is_on(drawn, "schedule");  // for a step that is not left out
  to.add_if(waits, depth, "before = scaler.get_scale()");
  to.add(depth, scales_loss(drawn) ? "scaler.step(optimizer)" : "optimizer.step()");
  to.add_if(scales_loss(drawn), depth, "scaler.update()");
  to.add_if(waits, depth, "if scaler.get_scale() >= before:");
  to.add_if(is_on(drawn, "schedule"), depth + int(waits), "schedule.step()");
  to.add(depth, is_on(drawn, "zeros") ? "optimizer.zero_grad(set_to_none=False)" : "optimizer.zero_grad()");
}

}  // namespace seeksim::harness::torch
