// DeepSpeed in a drawn case: its configuration, and its step.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "harness/torch/program/script.h"

namespace seeksim::harness::torch {
namespace {

using Names = std::vector<std::string>;

// "True" for "true".
std::string python_value(const std::string& value) {
  return value == "true" ? "True" : value == "false" ? "False" : value;
}

Names zero_optimization(const Case& drawn) {
  Names words = {fmt::format("\"stage\": {}", is_pipe(drawn)  ? drawn.at("stage")
                                              : is_moe(drawn) ? drawn.at("zero")
                                                              : drawn.at("wrapper").substr(4))};
  for (const Feature& one : features()) {
    // Its own linear layer is another one by design, and a threshold hides what small models are to show.
    const bool told = drawn.at(one.name) != one.values.front() || one.name == "ds_linear" || one.name == "persistent";
    if (!one.key.empty() && applies(one, drawn) && told)
      words.push_back(fmt::format("\"{}\": {}", one.key, python_value(drawn.at(one.name))));
  }
  if (is_on(drawn, "offload"))
    words.push_back(fmt::format("\"offload_optimizer\": {{\"device\": \"cpu\"{}{}}}",
                                is_on(drawn, "pinned") ? ", \"pin_memory\": True" : "",
                                drawn.at("ratio") == "1" ? "" : ", \"ratio\": " + drawn.at("ratio")));
  if ((drawn.at("gather") == "16bit" || drawn.at("look") == "whole") && drawn.at("wrapper") == "zero3")
    words.emplace_back("\"stage3_gather_16bit_weights_on_model_save\": True");
  if (is_on(drawn, "offload_param")) words.emplace_back("\"offload_param\": {\"device\": \"cpu\"}");
  return words;
}

// DeepSpeed's key fp16. The other values of a scale are torch.amp.GradScaler's.
std::string fp16_of(const Case& drawn) {
  const std::string& scale = drawn.at("scale");
  return fmt::format("\"fp16\": {{\"enabled\": True, {}}}",
                     scale == "static" ? "\"loss_scale\": 1024"
                                       : fmt::format("\"initial_scale_power\": 10, \"loss_scale_window\": {}, "
                                                     "\"hysteresis\": 1",
                                                     scale == "grows" ? 2 : 2000));
}

// Who divides by the number of micro-batches: the engine, or the script.
std::string backward_of(const Case& drawn, const std::string& divided) {
  const bool by_script = drawn.at("scaled_by") == "script";
  const std::string loss = by_script || drawn.at("accumulates") == "coalesced" ? divided : "loss";
  if (drawn.at("backward") == "tensor")
    return scales_loss(drawn) ? fmt::format("net.scale({}).backward()", loss) : loss + ".backward()";
  return fmt::format("net.backward({}{})", loss, by_script ? ", scale_wrt_gas=False" : "");
}

// The loss that a run records is the one whose backward() is called.
std::string backward_by_hand(const Case& drawn, const std::string& divided) {
  if (!scales_loss(drawn)) return divided + ".backward()";
  return drawn.at("backward") == "tensor" ? fmt::format("scaler.scale({}).backward()", divided)
                                          : divided + ".backward(scaler.scale(torch.tensor(1.0)))";
}

void add_micro_batch(const Case& drawn, int depth, const std::string& divided, Lines& to) {
  const std::string& accumulates = drawn.at("accumulates");
  if (accumulates == "boundary")
    to.add(depth, "if not PLAIN:")
        .add(depth + 1, fmt::format("net.set_gradient_accumulation_boundary(micro == {})",
                                    std::stoi(drawn.at("accumulation")) - 1));
  add_loss(drawn, depth, to);
  to.add(depth, "if not PLAIN:").add(depth + 1, backward_of(drawn, divided));
  if (accumulates == "engine") {
    const int last = std::stoi(drawn.at("accumulation")) - 1;
    add_edit_of_zero(drawn, depth + 1, last == 0 ? "" : fmt::format(" and micro == {}", last), to);
    to.add(depth + 1, "net.step()");
  }
  to.add(depth, "else:");
  to.add(depth + 1, backward_by_hand(drawn, divided));
}

}  // namespace

void add_config(const Case& drawn, Lines& to) {
  const std::string& accumulates = drawn.at("accumulates");
  const bool coalesces = accumulates == "coalesced";
  Names words = {"\"train_micro_batch_size_per_gpu\": 6",
                 fmt::format("\"gradient_accumulation_steps\": {}", coalesces ? "1" : drawn.at("accumulation")),
                 "\"zero_allow_untested_optimizer\": True", "\"zero_force_ds_cpu_optimizer\": False"};
  // Without the key it clips at 1.
  words.emplace_back(is_on(drawn, "clip") ? "\"gradient_clipping\": 0.2" : "\"gradient_clipping\": 0.0");
  if (drawn.at("precision") == "bf16")
    words.push_back(fmt::format("\"bf16\": {{\"enabled\": True{}}}",
                                drawn.at("immediate") == "true" ? ", \"immediate_grad_update\": True" : ""));
  if (drawn.at("precision") == "half") words.push_back(fp16_of(drawn));
  if (drawn.at("precision") == "autocast" || drawn.at("precision") == "fp16")
    words.push_back(fmt::format("\"torch_autocast\": {{\"enabled\": True, \"dtype\": \"{}\"}}",
                                drawn.at("precision") == "fp16" ? "float16" : "bfloat16"));
  if (accumulates == "unmanaged") words.emplace_back("\"managed_gradient_accumulation\": False");
  if (is_on(drawn, "prescale")) words.emplace_back("\"prescale_gradients\": True");
  if (is_on(drawn, "predivide")) words.emplace_back("\"gradient_predivide_factor\": 2.0");
  if (drawn.at("sent_as") != "default") words.emplace_back("\"communication_data_type\": \"fp32\"");
  if (drawn.at("added_as") != "default")
    words.push_back(fmt::format("\"data_types\": {{\"grad_accum_dtype\": \"{}\"}}", drawn.at("added_as")));
  if (carries_state(drawn)) words.emplace_back("\"checkpoint\": {\"load_universal\": not FIRST}");
  if (is_pipe(drawn) && drawn.at("recompute") == "on") words.emplace_back("\"pipeline\": {\"use_reentrant\": False}");
  if (drawn.at("order") == "data") words.emplace_back("\"use_data_before_expert_parallelism\": True");
  if (drawn.at("made_by") == "config")
    words.emplace_back("\"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 0.01, \"torch_adam\": True}}");
  if (drawn.at("optimizer") == "muon")
    words.emplace_back(
        "\"optimizer\": {\"type\": \"Muon\", \"params\": {\"muon_lr\": 0.02, \"adam_lr\": 0.01, \"betas\": [0.9, "
        "0.95]}}");
  to.gap();
  to.add_if(drawn.at("precision") == "half", 0,
            "deepspeed.get_accelerator().is_fp16_supported = lambda: True  # as a GPU; slow here, not wrong");
  to.add(0, "CONFIG = {");
  add_words(words, 1, to);
  const Names zero = zero_optimization(drawn);
  const std::string in_a_line = fmt::format("\"zero_optimization\": {{{}}},", fmt::to_string(fmt::join(zero, ", ")));
  if (in_a_line.size() < 110) {
    to.add(1, in_a_line);
  } else {
    to.add(1, "\"zero_optimization\": {");
    add_words(zero, 2, to);
    to.add(1, "},");
  }
  to.add(0, "}");
}

// What DeepSpeed makes of its configuration, by hand: matrices but for the embedding, and the rest.
void add_muon(int depth, Lines& to) {
  to.add(depth, "optimizer = None").add(depth, "if PLAIN:").add(depth + 1, "named = dict(net.named_parameters())");
  to.add(depth + 1, "kinds = {name: p.dim() > 1 and \"embed\" not in name for name, p in named.items()}");
  to.add(depth + 1, "halves = [[p for name, p in named.items() if p.requires_grad and kinds[name] == kind]");
  to.add(depth + 1, "          for kind in (True, False)]");
  to.add(depth + 1, "optimizer = MuonWithAuxAdam([");
  to.add(depth + 2, "dict(params=halves[0], use_muon=True, lr=0.02, momentum=0.95, weight_decay=0),");
  to.add(depth + 2, "dict(params=halves[1], use_muon=False, lr=0.01, betas=(0.9, 0.95), eps=1e-10, weight_decay=0),");
  to.add(depth + 1, "])");
}

void add_step_of_zero(const Case& drawn, const std::string& divided, Lines& to) {
  const std::string& micro_batches = drawn.at("accumulation");
  const std::string& accumulates = drawn.at("accumulates");
  const bool several = micro_batches != "1", coalesces = accumulates == "coalesced";
  Lines batches;
  if (several)
    batches.add(1, fmt::format("for micro in range({}):", micro_batches)).add(2, "x, y = batch(step, micro)");
  else
    batches.add(1, "x, y = batch(step, 0)");
  add_micro_batch(drawn, several ? 2 : 1, divided, batches);
  to.add_if(coalesces, 1, "with contextlib.nullcontext() if PLAIN else net.coalesce_grad_reduction():");
  to.add_block(int(coalesces), batches);
  to.add_if(several, 1, "if PLAIN:");  // of one micro-batch the step goes on in the same branch
  add_gradients(drawn, 2, to);
  add_edit(drawn, 2, to);
  add_clipping(drawn, 2, to);
  add_optimizer_step(drawn, 2, to);
  if (accumulates == "engine") return;
  to.add(1, "else:");
  add_edit_of_zero(drawn, 2, "", to);
  to.add(2, "net.step()");
}

}  // namespace seeksim::harness::torch
