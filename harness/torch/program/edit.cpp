// What a drawn script changes while it trains.
#include <fmt/format.h>

#include "harness/torch/program/script.h"

namespace seeksim::harness::torch {
namespace {

// The state of the optimizer that is halved.
std::string moment_of(const Case& drawn) {
  const std::string& optimizer = drawn.at("optimizer");
  return optimizer == "sgd" || optimizer == "rmsprop" ? "momentum_buffer" : "exp_avg";
}

// What is edited. DeepSpeed's functions for ZeRO 3 end with an error where the ranks do not divide its size.
std::string edited(const Case& drawn) {
  if (drawn.at("wrapper") != "zero3") return "model.head.bias";
  return fmt::format("model.blocks[-1][{}].weight", is_on(drawn, "dropout") ? -2 : -1);
}

// "grad", "fp32_param", "optimizer_state": of DeepSpeed's functions.
std::string name_in_zero(const Case& drawn) {
  const std::string& edit = drawn.at("edit");
  return edit == "gradient" ? "grad" : edit == "moment" ? "optimizer_state" : "fp32_param";
}

}  // namespace

bool edits_weight_first(const Case& drawn) { return is_on(drawn, "edit") && !is_deepspeed(drawn); }

// As the documentation of each says that weights are to be changed.
void add_edit_of_weight(const Case& drawn, Lines& to) {
  to.add(1, fmt::format("if step == {}:", middle(drawn)));
  if (drawn.at("wrapper") == "fsdp1") {
    to.add(2, "whole = fsdp.FullyShardedDataParallel.summon_full_params");
    to.add(2, "with torch.no_grad(), contextlib.nullcontext() if PLAIN else whole(net):");
  } else {
    to.add(2, "with torch.no_grad():");
  }
  to.add(3, "model.head.bias.mul_(0.5)");
}

void add_edit(const Case& drawn, int depth, Lines& to) {
  const std::string& edit = drawn.at("edit");
  if (edit == "off" || edits_weight_first(drawn)) return;
  // A rank of FSDP1 may have no part of it.
  const char* const there =
      edit == "gradient" && drawn.at("wrapper") == "fsdp1" ? " and model.head.bias.grad is not None" : "";
  to.add(depth, fmt::format("if step == {}{}:", middle(drawn), there));
  const std::string one = edited(drawn);
  to.add(depth + 1, edit == "gradient" ? one + ".grad.mul_(0.5)"
                    : edit == "moment" ? fmt::format("optimizer.state[{}][\"{}\"].mul_(0.5)", one, moment_of(drawn))
                                       : one + ".data.mul_(0.5)");
}

void add_edit_of_zero(const Case& drawn, int depth, const std::string& also, Lines& to) {
  if (drawn.at("edit") == "off") return;
  const std::string name = name_in_zero(drawn);
  const std::string key = drawn.at("edit") == "moment" ? fmt::format(", \"{}\"", moment_of(drawn)) : "";
  to.add(depth, fmt::format("if step == {}{}:", middle(drawn), also));
  to.add(depth + 1, fmt::format("value = safe_get_full_{}({}{})", name, edited(drawn), key));
  to.add(depth + 1, fmt::format("safe_set_full_{}({}, value * 0.5{})", name, edited(drawn), key));
}

void add_imports_of_edit(const Case& drawn, Lines& to) {
  const std::string name = name_in_zero(drawn);
  to.add_if(is_deepspeed(drawn) && drawn.at("edit") != "off", 0,
            fmt::format("from deepspeed.utils import safe_get_full_{0}, safe_set_full_{0}", name));
}

void add_turn(const Case& drawn, Lines& to) {
  if (drawn.at("turned") == "off") return;
  to.add(1, fmt::format("model.blocks[0].requires_grad_(step {} {})",
                        drawn.at("turned") == "freeze" ? "<" : ">=", middle(drawn)));
}

}  // namespace seeksim::harness::torch
