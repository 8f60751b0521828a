// How torch's pipelines are made of a model's parts in a drawn case, and its steps.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>

#include "harness/torch/program/script.h"
#include "harness/torch/program/stages.h"

namespace seeksim::harness::torch {
namespace {

using Names = std::vector<std::string>;

bool replicates(const Case& drawn) { return drawn.at("data") != "off"; }
bool saves(const Case& drawn) {
  return is_on(drawn, "resume") || drawn.at("look") != "off" || drawn.at("gather") != "off";
}

// A call that makes it, or a stage's part.
std::string model_of(const Case& drawn, const std::string& seed, const char* stage) {
  return fmt::format("Model({}{}){}", seed, stage, drawn.at("precision") == "bf16" ? ".bfloat16()" : "");
}

std::string class_of(const std::string& plan) {
  static const std::map<std::string, std::string> kClasses = {{"gpipe", "ScheduleGPipe"},
                                                              {"1f1b", "Schedule1F1B"},
                                                              {"interleaved", "ScheduleInterleaved1F1B"},
                                                              {"looped", "ScheduleLoopedBFS"},
                                                              {"zero", "ScheduleInterleavedZeroBubble"},
                                                              {"zbv", "ScheduleZBVZeroBubble"},
                                                              {"dualpipe", "ScheduleDualPipeV"}};
  return kClasses.at(plan);
}

// Of as many stages a rank.
std::string other_plan(const Case& drawn) {
  const std::string& plan = drawn.at("plan");
  if (plan == "gpipe") return drawn.at("batches") == "half" ? "gpipe" : "1f1b";
  if (plan == "1f1b") return "gpipe";
  if (plan == "interleaved") return "looped";
  if (plan == "dualpipe") return "zbv";
  if (plan == "zbv") return drawn.at("batches") == "odd" || is_on(drawn, "tied") ? "zbv" : "interleaved";
  return drawn.at("batches") == "odd" ? plan : "interleaved";
}

std::string own_of(const std::string& plan) {
  if (plan == "gpipe" || plan == "1f1b") return "[rank]";
  return plan == "zbv" || plan == "dualpipe" ? "[rank, STAGES - 1 - rank]" : "list(range(rank, STAGES, WAYS))";
}

// Nothing else asks for the rank than what stages it has.
bool is_plain_rank(const Case& drawn) {
  const std::string& plan = drawn.at("plan");
  return (plan == "gpipe" || plan == "1f1b") && !replicates(drawn) && !is_on(drawn, "resume");
}

bool is_single(const std::string& plan) { return plan == "gpipe" || plan == "1f1b"; }

void add_parts(const Case& drawn, const StagesShape& shape, int depth, Lines& to) {
  if (is_on(drawn, "traced")) {
    Names splits;
    for (int stage = 1; stage < shape.stages; ++stage)
      splits.push_back(fmt::format("\"blocks.{}\"", (stage - shape.first_blocks) * shape.depth));
    to.add(depth, "parts = [Model(1)]").add(depth, "if not PLAIN:");
    to.add(depth + 1, fmt::format("splits = [{}]", fmt::to_string(fmt::join(splits, ", "))));
    to.add(depth + 1, "spec = {name: SplitPoint.BEGINNING for name in splits}");
    to.add(depth + 1, "whole = pipeline(parts[0], (batch(0)[0].tensor_split(BATCHES)[0],), split_spec=spec)");
    to.add(depth + 1, "stages = [whole.build_stage(i, torch.device(\"cpu\")) for i in own]");
    to.add(depth + 1, "parts = [stage.submod for stage in stages]");
    return;
  }
  to.add(depth, fmt::format("parts = [{} for stage in ([None] if PLAIN else own)]",
                            model_of(drawn, is_on(drawn, "resume") ? "seed" : "1", ", stage")));
  if (is_on(drawn, "tied"))
    to.add(depth, "if PLAIN or rank == 0:").add(depth + 1, "parts[-1].head.weight = parts[0].embed.weight");
  const std::string& reshard = drawn.at("reshard");
  const char* const resharding = reshard == "off"  ? ", reshard_after_forward=False"
                                 : reshard == "on" ? ", reshard_after_forward=True"
                                                   : "";
  if (drawn.at("data") == "fsdp2")
    to.add(depth, "for part in [] if PLAIN else parts:")
        .add(depth + 1, "for unit in (*part.blocks.values(), part):")
        .add(depth + 2, fmt::format("fully_shard(unit, mesh=mesh[\"replica\"]{})", resharding));
  if (drawn.at("data") == "ddp") {
    to.add(depth, "nets = parts if PLAIN else [");
    to.add(depth + 1, "nn.parallel.DistributedDataParallel(part, process_group=replicas) for part in parts");
    to.add(depth, "]");
  }
}

const char* nets(const Case& drawn) { return drawn.at("data") == "ddp" ? "nets" : "parts"; }

void add_schedule(const Case& drawn, const StagesShape& shape, const std::string& plan, const std::string& loss,
                  int depth, Lines& to) {
  to.add(depth, "if not PLAIN:");
  const bool shapes = drawn.at("shapes") == "given";
  std::string one = "stages[0]";
  Names of_stage = {"net", "i", "STAGES", "torch.device(\"cpu\")"};
  if (replicates(drawn)) of_stage.emplace_back("group=mesh.get_group(\"stage\")");
  if (shapes) {
    const std::string& width = drawn.at("width");
    const int size = shape.samples / shape.batches;
    to.add(depth + 1, fmt::format("h = torch.empty({}, {}, requires_grad=True)", size, width));
    to.add(depth + 1, fmt::format("logits = torch.empty({}, 11, requires_grad=True)", size));
    of_stage.emplace_back("input_args=batch(0)[0].tensor_split(BATCHES)[0] if i == 0 else h");
    of_stage.emplace_back("output_args=logits if i == STAGES - 1 else h");
  }
  if (!is_on(drawn, "traced")) {
    const std::string call = fmt::format("PipelineStage({})", fmt::to_string(fmt::join(of_stage, ", ")));
    const std::string loop = fmt::format("for i, net in zip(own, {})", nets(drawn));
    const bool alone = is_single(plan) && of_stage.size() == 4 && drawn.at("dropout") == "off";
    if (alone) {
      one = "PipelineStage(parts[0], own[0], STAGES, torch.device(\"cpu\"))";
    } else if (call.size() + loop.size() < 95) {
      to.add(depth + 1, fmt::format("stages = [{} {}]", call, loop));
    } else {
      to.add(depth + 1, "stages = [").add(depth + 2, "PipelineStage(");
      add_words(of_stage, depth + 3, to);
      to.add(depth + 2, ")").add(depth + 2, loop).add(depth + 1, "]");
    }
  }
  if (is_on(drawn, "dropout"))
    to.add(depth + 1, "for stage in stages:").add(depth + 2, "stage.register_forward_context(seeded)");
  Names options = {is_single(plan) ? one : "stages", "BATCHES", "loss_fn=" + loss};
  if (drawn.at("scaled") != "schedule") options.emplace_back("scale_grads=False");
  const bool splits = drawn.at("given") == "whole";
  if (drawn.at("extra") == "columns" && splits)
    options.emplace_back("kwargs_chunk_spec={\"gain\": TensorChunkSpec(1)}");
  if (drawn.at("extra") == "whole" && splits) options.emplace_back("kwargs_chunk_spec={\"gain\": _Replicate}");
  const std::string in_a_line = fmt::to_string(fmt::join(options, ", "));
  if (in_a_line.size() + class_of(plan).size() + std::size_t(depth) * 4 < 108) {
    to.add(depth + 1, fmt::format("pipe = {}({})", class_of(plan), in_a_line));
    return;
  }
  to.add(depth + 1, fmt::format("pipe = {}(", class_of(plan)));
  add_words(options, depth + 2, to);
  to.add(depth + 1, ")");
}

void add_objects_of_stages(const Case& drawn, const StagesShape& shape, const std::string& loss, int depth, Lines& to) {
  const std::string& plan = drawn.at("plan");
  const std::string other = other_plan(drawn);
  const bool changes = drawn.at("then") == "other" && other != plan;
  if (changes)
    to.add(depth, fmt::format("own = {} if seed == 1 else {}", own_of(plan), own_of(other)));
  else
    to.add(depth, is_plain_rank(drawn) ? "own = [dist.get_rank()]" : "own = " + own_of(plan));
  add_parts(drawn, shape, depth, to);
  const bool few = drawn.at("frozen") == "block" || drawn.at("frozen") == "body";
  to.add(depth, "trained = list(dict.fromkeys(p for part in parts for p in part.parameters() if p.requires_grad))");
  to.add_if(few, depth, "trained = trained or [nn.Parameter(torch.zeros(0))]  # a stage may have none");
  if (drawn.at("optimizer") == "groups") {
    to.add(depth, "groups = [{\"params\": [p for p in trained if p.dim() > 1]}]");
    to.add(depth, "groups += [{\"params\": [p for p in trained if p.dim() == 1], \"lr\": 0.03}]");
  }
  Case named = drawn;
  named["frozen"] = "bias";  // the optimizer gets what is trained, by that name
  to.add(depth, "optimizer = " + optimizer_of(named));
  to.add_if(is_on(drawn, "schedule"), depth,
            "schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step))");
  if (!changes) return add_schedule(drawn, shape, plan, loss, depth, to);
  to.add(depth, "if seed == 1:");
  add_schedule(drawn, shape, plan, loss, depth + 1, to);
  to.add(depth, "else:");
  add_schedule(drawn, shape, other, loss, depth + 1, to);
}

std::string names_of(const Case& drawn) {
  std::string names = "own, parts, trained, optimizer";
  if (is_on(drawn, "schedule")) names += ", schedule";
  if (drawn.at("data") == "ddp") names += ", nets";
  return names + ", pipe";
}

void add_state_of_stages(const Case& drawn, Lines& to) {
  if (!saves(drawn)) return;
  to.gap().add(0, folder_of_state());
  to.gap().add(0, "def state():  # by the names of the whole model");
  to.add(1, "named = {name: p for part in parts for name, p in part.named_parameters() if p in optimizer.state}");
  to.add(1, "moments = {f\"{name}.{key}\": v for name, p in named.items() for key, v in optimizer.state[p].items()}");
  to.add(1, "return {**{name: v for part in parts for name, v in part.state_dict().items()}, **moments}");
}

// The new optimizer gets a state of the old one's form first, into which it is loaded.
void add_resume_of_stages(const Case& drawn, Lines& to) {
  to.add(1, fmt::format("if step == {} and not PLAIN:", middle(drawn)));
  to.add(2, "dcp.save(state(), checkpoint_id=FOLDER)");
  if (!is_on(drawn, "resume")) return;
  if (is_on(drawn, "schedule"))
    to.add(2, "place, rates = schedule.state_dict(), [group[\"lr\"] for group in optimizer.param_groups]");
  to.add(2, "like, form = next(iter(optimizer.state.items()))");
  to.add(2, names_of(drawn) + " = build(2)");
  to.add(2, "for p in trained:");
  to.add(3, "form = {key: torch.zeros_like(p) if v.shape == like.shape else v.clone() for key, v in form.items()}");
  to.add(3, "like, optimizer.state[p] = p, dict(form)");
  to.add(2, "dcp.load(state(), checkpoint_id=FOLDER)");
  if (!is_on(drawn, "schedule")) return;
  to.add(2, "schedule.load_state_dict(place)").add(2, "for group, rate in zip(optimizer.param_groups, rates):");
  to.add(3, "group[\"lr\"] = rate");
}

std::string call_of(const Case& drawn, const std::string& name, bool learns, const std::string& losses) {
  Names words;
  const bool whole = drawn.at("given") == "whole", extra = drawn.at("extra") != "off";
  if (whole) {
    words = {"*((x,) if 0 in own else ())"};
    if (extra) words.emplace_back("gain=gain");
  } else {
    words = {"arg_mbs=[(one,) for one in x.tensor_split(BATCHES)] if 0 in own else None"};
    if (extra) words.emplace_back("kwarg_mbs=[{\"gain\": one} for one in gains(gain)]");
  }
  // Without a target eval() ends with an error, where the schedule has a loss.
  words.emplace_back(whole ? "target=y if STAGES - 1 in own else None"
                           : "target_mbs=list(y.tensor_split(BATCHES)) if STAGES - 1 in own else None");
  if (!losses.empty()) words.push_back("losses=" + losses);
  if (learns && drawn.at("returns") == "off") words.emplace_back("return_outputs=False");
  if (learns && drawn.at("finalizes") == "last") words.emplace_back("finalize_gradients=call == 1");
  return fmt::format("{}({})", name, fmt::to_string(fmt::join(words, ", ")));
}

// A call, in as many lines as it takes.
void add_call(const std::string& before, const std::string& call, int depth, Lines& to) {
  if (before.size() + call.size() + std::size_t(depth) * 4 < 118) {
    to.add(depth, before + call);
    return;
  }
  const std::size_t open = call.find('(');
  to.add(depth, before + call.substr(0, open + 1));
  std::string inside = call.substr(open + 1, call.size() - open - 2);
  for (const char* cut : {", target", ", losses", ", kwarg_mbs", ", return_", ", finalize"}) {
    const std::size_t at = inside.find(cut);
    if (at != std::string::npos) inside.replace(at, 1, ",\n");
  }
  for (std::size_t at = 0; at <= inside.size();) {
    const std::size_t end = std::min(inside.find('\n', at), inside.size());
    std::string line = inside.substr(at, end - at);
    if (line.starts_with(' ')) line.erase(0, 1);
    to.add(depth + 1, line + (end == inside.size() ? "," : ""));
    at = end + 1;
  }
  to.add(depth, ")");
}

// The loop over micro-batches by hand.
void add_loop_by_hand(const Case& drawn, int depth, Lines& to) {
  const bool drops = is_on(drawn, "dropout"), extra = drawn.at("extra") != "off";
  Names names = {"one", "of_one"}, tensors = {"x.tensor_split(BATCHES)", "y.tensor_split(BATCHES)"};
  if (extra) names.emplace_back("of_gain");
  if (extra) tensors.emplace_back("gains(gain)");
  const std::string zipped = fmt::format("zip({})", fmt::to_string(fmt::join(tensors, ", ")));
  const std::string all = fmt::to_string(fmt::join(names, ", "));
  const bool long_line = drops && extra;
  to.add_if(long_line, depth, "parted = " + zipped);
  const std::string in = long_line ? "parted" : zipped;
  to.add(depth,
         drops ? fmt::format("for micro, ({}) in enumerate({}):", all, in) : fmt::format("for {} in {}:", all, in));
  to.add_if(drops, depth + 1, "NOW[0] = step * 20 + micro");
}

const char* model_call(const Case& drawn) {
  return drawn.at("extra") == "off" ? "parts[0](one)" : "parts[0](one, gain=of_gain)";
}

void add_evaluation_of_stages(const Case& drawn, const std::string& loss, int depth, Lines& to) {
  const bool told = is_on(drawn, "told");
  to.add(depth, fmt::format("for net in {}:", nets(drawn))).add(depth + 1, "net.eval()");
  to.add(depth, "with torch.no_grad():");
  if (told) {
    to.add(depth + 1, "if PLAIN:");
    add_loop_by_hand(drawn, depth + 2, to);
    to.add(depth + 3, fmt::format("told.append({}({}, of_one))", loss, model_call(drawn)));
    to.add(depth + 1, "else:");
    add_call("", call_of(drawn, "pipe.eval", false, "losses"), depth + 2, to);
    to.add(depth + 2, "told += losses");
  } else {
    to.add(depth + 1, "if not PLAIN:");
    add_call("", call_of(drawn, "pipe.eval", false, ""), depth + 2, to);
  }
  to.add(depth, fmt::format("for net in {}:", nets(drawn))).add(depth + 1, "net.train()");
}

// step() of the schedule, or the same by hand.
void add_call_of_step(const Case& drawn, const std::string& loss, int depth, Lines& to) {
  const bool twice = drawn.at("calls") == "2", told = is_on(drawn, "told");
  const bool merged = told && drawn.at("returns") == "on";
  to.add(depth, fmt::format("{} = batch({})", drawn.at("extra") == "off" ? "x, y" : "x, y, gain",
                            twice ? "step * 2 + call" : "step"));
  const bool counts = told || is_on(drawn, "evaluate");
  to.add_if(counts, depth, "losses = []");
  if (is_on(drawn, "evaluate")) add_evaluation_of_stages(drawn, loss, depth, to);
  to.add(depth, "if PLAIN:");
  to.add_if(merged, depth + 1, "outs = []").add_if(told && is_on(drawn, "evaluate"), depth + 1, "losses = []");
  add_loop_by_hand(drawn, depth + 1, to);
  if (!told) {
    to.add(depth + 2, fmt::format("{}({}, of_one).backward()", loss, model_call(drawn))).add(depth, "else:");
    add_call("", call_of(drawn, "pipe.step", true, counts ? "losses" : ""), depth + 1, to);
    return;
  }
  to.add(depth + 2, fmt::format("out = {}", model_call(drawn)))
      .add(depth + 2, fmt::format("loss = {}(out, of_one)", loss));
  to.add(depth + 2, "loss.backward()").add(depth + 2, "losses.append(loss.detach())");
  to.add_if(merged, depth + 2, "outs.append(out)").add_if(merged, depth + 1, "out = torch.cat(outs)");
  to.add(depth, "else:");
  add_call(merged ? "out = " : "", call_of(drawn, "pipe.step", true, "losses"), depth + 1, to);
  to.add(depth, "told += [loss.detach() for loss in losses]");
  if (merged) to.add(depth, "if out is not None:").add(depth + 1, "told.append(out.detach().float().pow(2).mean())");
}

void add_end_of_stages_step(const Case& drawn, Lines& to) {
  const bool replicas = replicates(drawn), scales = drawn.at("scaled") == "schedule";
  if (replicas || scales) {
    to.add(1, "for p in [p for p in trained if PLAIN and p.grad is not None]:");
    to.add_if(replicas, 2, "dist.all_reduce(p.grad, group=replicas)").add_if(replicas, 2, "p.grad /= 2");
    to.add_if(scales, 2, "p.grad /= BATCHES");
  }
  if (is_on(drawn, "clip")) {
    to.add(1, "norm = nn.utils.get_total_norm([p.grad for p in trained if p.grad is not None])");
    to.add(1, "if not PLAIN:  # of all stages");
    to.add_if(drawn.at("data") == "fsdp2", 2, "norm = norm.full_tensor()");
    to.add(2, "norm = norm.float()**2");  // that of a stage without gradients is fp32
    to.add(2, replicas ? "dist.all_reduce(norm, group=mesh.get_group(\"stage\"))" : "dist.all_reduce(norm)");
    to.add(2, "norm = norm**0.5").add(1, "nn.utils.clip_grads_with_norm_(trained, 0.2, norm)");
  }
  add_optimizer_step(drawn, 1, to);
}

// The forward pass uses what the last step left.
void add_end_of_stages(const Case& drawn, const StagesShape& shape, Lines& to) {
  const bool extra = drawn.at("extra") != "off", gathers = drawn.at("gather") != "off";
  const std::string& passed = drawn.at("passed");
  const std::string last = fmt::format("batch({})", 2 * std::stoi(drawn.at("steps")));
  const bool short_end = !gathers && !extra && passed == "tensor";
  to.add_if(!short_end, 0, fmt::format("{} = {}", extra ? "x, y, gain" : "x, y", last));
  if (gathers) {
    to.add(0, "bare = parts[0]").add(0, "if not PLAIN:").add(1, "dcp.save(state(), checkpoint_id=FOLDER + \".end\")");
    to.add(1, "bare = Model(3)").add(1, "dcp.load(bare.state_dict(), checkpoint_id=FOLDER + \".end\")");
    add_loop_by_hand(drawn, 0, to);
    to.add(1, extra ? "bare(one, gain=of_gain)" : "bare(one)");
  } else {
    // eval() ends with an error where the first and the last stage are on one rank.
    const std::string h = fmt::format("torch.randn({}, {}){}", shape.samples, drawn.at("width"),
                                      drawn.at("precision") == "bf16" ? ".bfloat16()" : "");
    const std::string also = passed == "tensor" ? "" : passed == "tokens" ? ", x" : ", h";
    const char* const gain = extra ? ", gain=gain" : "";
    to.add(0, "for i, part in zip([0] if PLAIN else own, parts):");
    if (also.empty())
      to.add(1, fmt::format("part({} if i == 0 else {}{})", short_end ? last + "[0]" : "x", h, gain));
    else
      to.add(1, "h = " + h).add(1, fmt::format("part(x{1}) if i == 0 else part(h{0}{1})", also, gain));
  }
  // The recorder sees weights that a module uses.
  if (is_on(drawn, "told"))
    to.add(0, "if told:")
        .add(1, "losses = nn.PReLU(len(told))")
        .add(1, "losses.weight.data = torch.stack(told)")
        .add(1, "losses(torch.zeros(1, len(told)))");
  to.add(0, "dist.destroy_process_group()");
}

}  // namespace

void add_stages_imports(const Case& drawn, const StagesShape& shape, Lines& to) {
  const bool fsdp = drawn.at("data") == "fsdp2", traced = is_on(drawn, "traced"), splits = drawn.at("given") == "whole";
  to.add_if(is_on(drawn, "dropout"), 0, "import contextlib").add_if(saves(drawn), 0, "import os");
  to.add(0, "import sys").add(0, "import torch").add(0, "import torch.distributed as dist");
  to.add_if(saves(drawn), 0, "import torch.distributed.checkpoint as dcp");
  to.add(0, "import torch.nn as nn").add(0, "import torch.nn.functional as F");
  to.add_if(replicates(drawn), 0, "from torch.distributed.device_mesh import init_device_mesh");
  to.add_if(fsdp, 0, "from torch.distributed.fsdp import fully_shard");
  Names names = {traced ? "SplitPoint, pipeline" : "PipelineStage", class_of(drawn.at("plan"))};
  const std::string other = class_of(other_plan(drawn));
  if (drawn.at("then") == "other" && other != names[1]) names.push_back(other);
  to.add(0, fmt::format("from torch.distributed.pipelining import {}", fmt::to_string(fmt::join(names, ", "))));
  if (splits && drawn.at("extra") == "columns")
    to.add(0, "from torch.distributed.pipelining.microbatch import TensorChunkSpec");
  if (splits && drawn.at("extra") == "whole")
    to.add(0, "from torch.distributed.pipelining.microbatch import _Replicate");
  to.add_if(drawn.at("recompute") != "off", 0, "from torch.utils.checkpoint import checkpoint");
  to.add(0, "PLAIN = \"--plain\" in sys.argv");
  to.add(0, fmt::format("WAYS, STAGES, BATCHES = {}, {}, {}  # ranks of a pipeline, micro-batches", shape.ways,
                        shape.stages, shape.batches));
}

void add_stages_build(const Case& drawn, const StagesShape& shape, const std::string& loss, Lines& to) {
  const std::string& extra = drawn.at("extra");
  if (extra == "samples" || extra == "columns")
    to.gap()
        .add(0, "def gains(gain):")
        .add(1, fmt::format("return gain.tensor_split(BATCHES, {})", extra == "columns" ? 1 : 0));
  else if (extra != "off")
    to.gap().add(0, "def gains(gain):").add(1, "return [gain] * BATCHES");
  const bool resumes = is_on(drawn, "resume");
  if (resumes) {
    to.gap().add(0, "def build(seed):");
    to.add(1, "pipe = None");
    add_objects_of_stages(drawn, shape, loss, 1, to);
    to.add(1, "return " + names_of(drawn));
  }
  add_state_of_stages(drawn, to);
  to.gap().add(0, "dist.init_process_group(\"gloo\")");
  if (replicates(drawn)) {
    to.add(0, "mesh = init_device_mesh(\"cpu\", (2, WAYS), mesh_dim_names=(\"replica\", \"stage\"))");
    to.add(0, "replicas = mesh.get_group(\"replica\")");
  }
  to.add_if(!replicates(drawn) && !is_plain_rank(drawn), 0, "rank = dist.get_rank()");
  to.add_if(replicates(drawn), 0, "rank = mesh.get_local_rank(\"stage\")");
  if (resumes)
    to.add(0, names_of(drawn) + " = build(1)");
  else
    add_objects_of_stages(drawn, shape, loss, 0, to);
}

void add_stages_steps(const Case& drawn, const StagesShape& shape, const std::string& loss, Lines& to) {
  const bool twice = drawn.at("calls") == "2";
  to.add_if(is_on(drawn, "told"), 0, "told = []  # losses, and means of outputs");
  to.add(0, fmt::format("for step in range({}):", drawn.at("steps")));
  if (is_on(drawn, "resume") || drawn.at("look") != "off") add_resume_of_stages(drawn, to);
  to.add_if(twice, 1, "for call in range(2):");
  add_call_of_step(drawn, loss, twice ? 2 : 1, to);
  add_end_of_stages_step(drawn, to);
  add_end_of_stages(drawn, shape, to);
}

}  // namespace seeksim::harness::torch
