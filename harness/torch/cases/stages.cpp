// What is drawn of torch's own pipelines, what of it does not go together, and what a case is held to.
#include <algorithm>

#include "harness/torch/cases/features.h"

namespace seeksim::harness::torch {
namespace {

using Names = std::vector<std::string>;

const Names kStages = {"stages"};
const Names kSingle = {"gpipe", "1f1b"};                  // one stage a rank
const Names kLooped = {"interleaved", "looped", "zero"};  // one or several
const Names kV = {"zbv", "dualpipe"};                     // two, the first and the last stage on rank 0
const Names kReplicated = {"ddp", "fsdp2"};
const Names kOn = {"on"};

// Features of others that mean something here, too.
const Names kAlsoOfStages = {"np",       "precision", "optimizer", "steps",     "clip",   "schedule", "depth",
                             "width",    "inputs",    "tied",      "frozen",    "unused", "norm",     "experts",
                             "hook",     "dropout",   "buffer",    "recompute", "resume", "look",     "gather",
                             "evaluate", "passed",    "told",      "sizes",     "reshard"};

Feature of_stages(std::string name, Names values, std::string description, bool of_plain = false) {
  return {std::move(name), std::move(values), kStages, of_plain, "", std::move(description)};
}

Rule cannot_stage(std::map<std::string, Names> when, std::string why) {
  when["wrapper"] = kStages;
  return {std::move(when), Grade::bits, std::move(why)};
}
Rule stage_held_to(Grade grade, std::map<std::string, Names> when, std::string why) {
  return {std::move(when), grade, std::move(why)};
}

std::vector<Feature> own_features() {
  const Names off_on = {"off", "on"};
  return {
      of_stages("plan", {"gpipe", "1f1b", "interleaved", "looped", "zero", "zbv", "dualpipe"},
                "torch's ScheduleGPipe, 1F1B, Interleaved1F1B, LoopedBFS, InterleavedZeroBubble, ZBVZeroBubble, "
                "DualPipeV",
                true),
      of_stages("local", {"2", "1"}, "stages of a rank", true),
      of_stages("data", {"off", "ddp", "fsdp2"}, "two replicas of the pipeline, whose stages are under DDP or FSDP2",
                true),
      of_stages("batches", {"stages", "twice", "odd", "half"},
                "micro-batches: as many as stages; twice, one more, or half as many", true),
      of_stages("begins", {"block", "embedding"}, "the first stage has blocks, or the embedding alone", true),
      of_stages("scaled", {"schedule", "sum", "loss"},
                "who divides by the micro-batches: scale_grads; nobody, as the loss is a sum; the script's loss", true),
      of_stages("twice", off_on, "each block is called twice", true),
      of_stages("shared", {"off", "weight", "factor"},
                "the two layers of a block have one weight; their weights are multiplied by one parameter", true),
      of_stages("extra", {"off", "samples", "columns", "whole", "number"},
                "a keyword argument of all stages: split with the samples, by its columns, given whole, or a number",
                true),
      of_stages("calls", {"1", "2"}, "calls of step() before the optimizer's step", true),
      of_stages("given", {"whole", "parts"}, "step() gets a batch, or its micro-batches (arg_mbs)"),
      of_stages("shapes", {"found", "given"}, "what stages pass on is found out, or given (input_args, output_args)"),
      of_stages("returns", {"on", "off"}, "return_outputs"),
      of_stages("traced", off_on, "stages are made by pipeline(split_spec=...)"),
      of_stages("finalizes", {"each", "last"}, "each call reduces FSDP2's gradients, or the last (finalize_gradients)"),
      of_stages("then", {"same", "other"}, "the schedule behind a resume"),
  };
}

}  // namespace

bool is_stages(const Case& drawn) { return drawn.at("wrapper") == "stages"; }

void add_stages_features(std::vector<Feature>& to) {
  add_wrapper(to, "stages", kAlsoOfStages);
  for (Feature& one : to) {
    if (one.name == "passed") one.values.emplace_back("own");
    if (one.name == "passed") one.description += "; own: one, and one that a stage's parameter alone makes";
    if (one.name == "hook") one.values.emplace_back("after");
    if (one.name == "hook") one.description += "; or register_post_accumulate_grad_hook() does";
  }
  const std::vector<Feature> own = own_features();
  to.insert(to.end(), own.begin(), own.end());
}

const std::vector<Need>& needs_of_stages() {
  static const std::vector<Need> all = {
      {"local", "plan", kLooped},       {"tied", "plan", kV, "stages"}, {"begins", "inputs", {"tokens"}},
      {"finalizes", "data", {"fsdp2"}}, {"finalizes", "calls", {"2"}},  {"then", "resume", kOn},
  };
  return all;
}

namespace {

// Of what the model and its stages are.
std::vector<Rule> impossible_of_model() {
  return {
      cannot_stage({{"precision", {"fp16", "half"}}}, "It is drawn in fp32, autocast and bf16."),
      cannot_stage({{"optimizer", {"muon", "cpu_adam"}}}, "It is DeepSpeed's."),
      cannot_stage({{"recompute", {"deepspeed", "deepspeed_new"}}}, "It is DeepSpeed's."),
      cannot_stage({{"norm", {"batch"}}}, "Its numbers depend on the order of micro-batches in each stage."),
      cannot_stage({{"look", {"whole"}}}, "A stage has no whole model to save."),
      cannot_stage({{"gather", {"16bit"}}}, "It is a function of DeepSpeed."),
      cannot_stage({{"tied", kOn}, {"data", kReplicated}}, "Two modules of DDP or FSDP2 cannot have one parameter."),
      cannot_stage({{"tied", kOn}, {"frozen", {"body"}}}, "The head has the embedding's weight, which is frozen."),
      cannot_stage({{"experts", {"3"}}, {"precision", {"autocast", "bf16"}}},
                   "A sample that rounding sends elsewhere says nothing."),
      cannot_stage({{"passed", {"tokens"}}, {"inputs", {"numbers"}}}, "There are none."),
      cannot_stage({{"passed", {"own"}}, {"begins", {"embedding"}}}, "The first stage has no such parameter."),
      cannot_stage({{"passed", {"own"}}, {"twice", kOn}}, "A block would have to take its own second output."),
      cannot_stage({{"passed", {"own"}}, {"frozen", {"body", "block"}}}, "Another stage would have nothing to train."),
      cannot_stage({{"unused", kOn}, {"data", {"ddp"}}}, "DDP has to look for what is not used."),
      cannot_stage({{"unused", kOn}, {"resume", kOn}}, "The optimizer has no state of it to save."),
      cannot_stage({{"frozen", {"body", "block"}}, {"data", {"ddp"}}}, "DDP takes no module with nothing to train."),
      cannot_stage({{"frozen", {"body", "block"}}, {"resume", kOn}}, "A stage may have no state to save."),
      cannot_stage({{"hook", {"weight", "after"}}, {"frozen", {"bias"}}}, "It is frozen."),
      cannot_stage({{"hook", {"after"}}, {"plan", {"looped"}}}, "It goes by the order of micro-batches."),
      cannot_stage({{"hook", {"after"}}, {"then", {"other"}}}, "It goes by the order of micro-batches."),
      cannot_stage({{"hook", {"weight", "after"}}, {"data", kReplicated}},
                   "FSDP2's and DDP's own hooks are known to come before or after it (fsdp-weight-hook)."),
      cannot_stage({{"frozen", {"body"}}, {"recompute", {"reentrant"}}},
                   "Reentrant recomputation takes an input with a gradient."),
      cannot_stage({{"inputs", {"numbers"}}, {"recompute", {"reentrant"}}},
                   "Reentrant recomputation takes an input with a gradient."),
  };
}

// Of schedules, and of how stages are made.
std::vector<Rule> impossible_of_plan() {
  std::vector<Rule> rules = {
      cannot_stage({{"np", {"1"}}, {"data", kReplicated}}, "One rank has no replica."),
      cannot_stage({{"plan", {"zbv"}}, {"then", {"other"}}, {"told", kOn}}, "Another rank has the losses behind it."),
      cannot_stage({{"plan", kV}, {"evaluate", kOn}}, "Its eval() ends with an error."),
      cannot_stage({{"sizes", {"micro"}}, {"np", {"2"}}, {"data", {"off"}}},
                   "Each rank receives as much as the first micro-batch had."),
      cannot_stage({{"sizes", {"micro"}}, {"np", {"4"}}}, "Each rank receives as much as the first micro-batch had."),
      cannot_stage({{"plan", {"1f1b", "dualpipe"}}, {"batches", {"half"}}},
                   "It takes as many micro-batches as stages."),
      cannot_stage({{"plan", {"interleaved", "zero"}}, {"local", {"2"}}, {"batches", {"odd"}}},
                   "It takes a multiple of its rounds."),
      cannot_stage({{"plan", {"looped"}}, {"extra", {"columns", "whole"}}}, "It has no argument for that."),
      cannot_stage({{"plan", {"interleaved"}}, {"then", {"other"}}, {"extra", {"columns", "whole"}}},
                   "It has no argument for that."),
  };
  for (const Names& plans : {kSingle, kLooped}) {
    for (const auto& [np, data] : {std::pair(Names{"1"}, Names{"off"}), {Names{"2"}, kReplicated}}) {
      if (plans == kLooped)
        rules.push_back(cannot_stage({{"evaluate", kOn}, {"plan", plans}, {"local", {"2"}}, {"np", np}, {"data", data}},
                                     "Its eval() ends with an error."));
      std::map<std::string, Names> one = {{"begins", {"embedding"}}, {"plan", plans}, {"np", np}, {"data", data}};
      if (plans == kLooped) one["local"] = {"1"};
      rules.push_back(cannot_stage(one, "There is one stage."));
    }
  }
  const std::map<std::string, Names> untraced = {{"data", kReplicated},
                                                 {"passed", {"pair", "tokens", "own"}},
                                                 {"recompute", {"on", "reentrant"}},
                                                 {"experts", {"3"}},
                                                 {"resume", kOn},
                                                 {"look", {"state"}},
                                                 {"gather", {"whole"}},
                                                 {"evaluate", kOn},
                                                 {"dropout", kOn},
                                                 {"buffer", kOn},
                                                 {"extra", {"samples", "columns", "whole", "number"}},
                                                 {"precision", {"autocast", "bf16"}},
                                                 {"shapes", {"given"}},
                                                 {"hook", {"weight", "module", "after"}},
                                                 {"tied", kOn},
                                                 {"unused", kOn},
                                                 {"sizes", {"micro"}}};
  rules.push_back(cannot_stage({{"traced", kOn}, {"twice", kOn}}, "A block that begins a stage begins it twice."));
  for (const auto& [name, values] : untraced)
    rules.push_back(cannot_stage({{"traced", kOn}, {name, values}}, "A traced model does not have it, or loses it."));
  const std::map<std::string, Names> unknown = {{"passed", {"pair", "tokens", "own"}},
                                                {"precision", {"autocast", "bf16"}},
                                                {"sizes", {"micro"}},
                                                {"frozen", {"body", "block"}}};
  for (const auto& [name, values] : unknown)
    rules.push_back(cannot_stage({{"shapes", {"given"}}, {name, values}}, "The script gives one float tensor."));
  return rules;
}

}  // namespace

std::vector<Rule> impossible_of_stages() {
  std::vector<Rule> rules = impossible_of_model();
  const std::vector<Rule> of_plan = impossible_of_plan();
  rules.insert(rules.end(), of_plan.begin(), of_plan.end());
  rules.push_back({{{"passed", {"own"}}, {"wrapper", {"pipe"}}}, Grade::bits, "It is drawn with torch's pipelines."});
  Names others = features().front().values;
  std::erase(others, "stages");
  rules.push_back({{{"hook", {"after"}}, {"wrapper", others}}, Grade::bits, "It is drawn with torch's pipelines."});
  return rules;
}

const std::vector<Rule>& expected_of_stages() {
  static const std::vector<Rule> rules = {
      stage_held_to(Grade::rounding, {{"precision", {"bf16"}}, {"data", {"fsdp2"}}},
                    "A bf16 step rounds in vectors otherwise than at a shard's end."),
      stage_held_to(Grade::reassociated, {{"clip", kOn}}, "The norm of the gradient is summed over other pieces."),
      stage_held_to(Grade::reassociated, {{"tied", kOn}},
                    "Each use of a tied weight adds its micro-batches apart from those of the other."),
      stage_held_to(Grade::reassociated, {{"passed", {"pair"}}},
                    "What a stage passes on twice has two gradients, which are added at another place."),
      stage_held_to(Grade::reassociated, {{"plan", {"interleaved"}}, {"then", {"other"}}},
                    "LoopedBFS goes backward through micro-batches in reverse order."),
      stage_held_to(Grade::reassociated, {{"plan", {"looped"}}},
                    "It goes backward through micro-batches in reverse order."),
      stage_held_to(Grade::reassociated, {{"recompute", {"reentrant"}}, {"twice", kOn}},
                    "The recomputed use has a backward pass of its own, whose gradients are added apart."),
      stage_held_to(Grade::reassociated, {{"calls", {"2"}}, {"data", kReplicated}},
                    "Sums over replicas after each call have another order."),
      stage_held_to(Grade::reassociated, {{"optimizer", {"fused"}}, {"data", {"fsdp2"}}},
                    "The fused kernel rounds in vectors otherwise than at a shard's end."),
  };
  return rules;
}

}  // namespace seeksim::harness::torch
