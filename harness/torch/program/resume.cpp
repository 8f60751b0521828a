// Where a drawn training is saved and goes on: in new objects, or in a second run of other ranks.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "harness/torch/program/script.h"

namespace seeksim::harness::torch {
namespace {

using Names = std::vector<std::string>;

// The state of a training by hand, or as torch.distributed.checkpoint has it.
void add_state(const Case& drawn, Lines& to) {
  const char* const schedule = is_on(drawn, "schedule") ? ", \"schedule\": schedule.state_dict()" : "";
  to.gap().add(0, "def state():");
  to.add(1, "if PLAIN:").add(2, "of_model, of_optimizer = model.state_dict(), optimizer.state_dict()");
  if (!is_deepspeed(drawn)) to.add(1, "else:").add(2, "of_model, of_optimizer = get_state_dict(net, optimizer)");
  to.add(1, fmt::format("return {{\"model\": of_model, \"optimizer\": of_optimizer{}}}", schedule));
}

bool loads_weights_only(const Case& drawn) { return drawn.at("keeps") != "all"; }

// Rank 0 has the state and sends it.
bool is_sent(const Case& drawn) { return drawn.at("state").starts_with("rank0"); }

// "", or the options of get_state_dict() and of set_state_dict().
std::string options_of_state(const Case& drawn, bool sets) {
  const std::string& state = drawn.at("state");
  const char* const sent =
      sets ? "full_state_dict=True, broadcast_from_rank0=True" : "full_state_dict=True, cpu_offload=True";
  return state == "whole"  ? "full_state_dict=True"
         : is_sent(drawn)  ? sent
         : state == "flat" ? "flatten_optimizer_state_dict=True"
                           : "";
}

// The state of torch's wrappers goes from some objects into others.
void add_handing_over(const Case& drawn, const std::string& made, Lines& to) {
  const bool weights = loads_weights_only(drawn), own = drawn.at("state") == "own", same = made.empty();
  const char* const options = options_of_state(drawn, true).empty() ? "" : ", options=options";
  const auto add_options = [&](bool sets) {
    to.add_if(*options != 0, 2, fmt::format("options = StateDictOptions({})", options_of_state(drawn, sets)));
  };
  add_options(false);
  to.add_if(is_on(drawn, "schedule"), 2, "place = schedule.state_dict()");
  if (own) {
    to.add(2, "of_model = copy.deepcopy(net.state_dict())");
    if (drawn.at("redundancy") != "off" && !weights)
      to.add(2, "optimizer.consolidate_state_dict()")
          .add(2, "whole = [optimizer.state_dict() if dist.get_rank() == 0 else None]")
          .add(2, "dist.broadcast_object_list(whole)")
          .add(2, "of_optimizer = whole[0]");
    else
      to.add_if(!weights, 2, "of_optimizer = copy.deepcopy(optimizer.state_dict())");
    to.add_if(!same, 2, made);
    to.add(2, "net.load_state_dict(of_model)").add_if(!weights, 2, "optimizer.load_state_dict(of_optimizer)");
  } else if (weights) {
    to.add(2, fmt::format("of_model = get_model_state_dict(net{})", options)).add_if(!same, 2, made);
    if (is_sent(drawn)) add_options(true);
    to.add(2, fmt::format("set_model_state_dict(net, of_model{})", options));
  } else {
    to.add(2, fmt::format("of_model, of_optimizer = get_state_dict(net, optimizer{})", options)).add_if(!same, 2, made);
    if (is_sent(drawn)) add_options(true);
    if (drawn.at("state") == "rank0") {
      to.add(2, fmt::format("set_model_state_dict(net, of_model{})", options));
      to.add(2, fmt::format("set_optimizer_state_dict(net, optimizer, of_optimizer{})", options));
    } else {
      to.add(2, "set_state_dict(");
      to.add(3, fmt::format("net, optimizer, model_state_dict=of_model, optim_state_dict=of_optimizer{}", options));
      to.add(2, ")");
    }
  }
  to.add_if(is_on(drawn, "schedule"), 2, "schedule.load_state_dict(place)");
}

}  // namespace

std::string names_of_objects(const Case& drawn) {
  return fmt::format("model, net, optimizer{}{}", is_on(drawn, "schedule") ? ", schedule" : "",
                     scales_loss(drawn) ? ", scaler" : "");
}

bool carries_state(const Case& drawn) { return moves(drawn) && is_deepspeed(drawn) && drawn.at("wrapper") != "zero0"; }

bool moves(const Case& drawn) { return drawn.at("world") != "same"; }

int ranks_before(const Case& drawn) {
  const int ranks = std::stoi(drawn.at("np"));
  return drawn.at("world") == "fewer" ? ranks / 2 : ranks * 2;
}

void add_imports_of_state(const Case& drawn, Lines& to) {
  const bool sharded = drawn.at("wrapper") == "fsdp1" || is_fsdp2(drawn) || is_tensors(drawn);
  const bool gathers = sharded && (drawn.at("gather") != "off" || drawn.at("look") == "whole");
  const bool hands = has_own_loop(drawn) && !is_deepspeed(drawn) && is_on(drawn, "resume");
  const bool by_call = hands && drawn.at("state") != "own", weights = loads_weights_only(drawn);
  const bool looks = has_own_loop(drawn) && !is_deepspeed(drawn) && drawn.at("look") == "state";
  Names names;
  if (gathers || (by_call && !options_of_state(drawn, true).empty())) names.emplace_back("StateDictOptions");
  if (gathers || (by_call && weights)) names.emplace_back("get_model_state_dict");
  if (looks || (by_call && !weights)) names.emplace_back("get_state_dict");
  const bool in_two = drawn.at("state") == "rank0";
  if (by_call) names.emplace_back(weights || in_two ? "set_model_state_dict" : "set_state_dict");
  if (by_call && in_two && !weights) names.emplace_back("set_optimizer_state_dict");
  if (names.empty()) return;
  const std::string in_a_line = fmt::to_string(fmt::join(names, ", "));
  if (in_a_line.size() < 50) {
    to.add(0, "from torch.distributed.checkpoint.state_dict import " + in_a_line);
    return;
  }
  to.add(0, "from torch.distributed.checkpoint.state_dict import (");
  add_words(names, 1, to);
  to.add(0, ")");
}

// Behind some steps: the state goes into new objects, or back into those that it came from.
void add_resume(const Case& drawn, Lines& to) {
  const bool weights = loads_weights_only(drawn);
  const std::string made = drawn.at("into") == "same" ? "" : names_of_objects(drawn) + " = build(2)";
  to.add(1, fmt::format("if step == {} and not PLAIN:", middle(drawn)));
  const bool restores = is_on(drawn, "dropout") && drawn.at("loop") != "accelerate";  // which does so itself
  to.add_if(restores, 2, "random = torch.get_rng_state()");
  if (!has_own_loop(drawn)) {
    add_resume_of_loop(drawn, made, to);
  } else if (is_deepspeed(drawn)) {
    to.add(2, folder_of_state()).add(2, "net.save_checkpoint(FOLDER)").add_if(!made.empty(), 2, made);
    to.add(2, fmt::format("net.load_checkpoint(FOLDER{})", drawn.at("keeps") == "module" ? ", load_module_only=True"
                                                           : weights ? ", load_optimizer_states=False"
                                                                     : ""));
  } else {
    add_handing_over(drawn, made, to);
  }
  to.add_if(restores, 2, "torch.set_rng_state(random)");
  if (weights) to.add(1, fmt::format("elif step == {}:", middle(drawn))).add(2, "optimizer.state.clear()");
}

// The second of two runs goes on with what the first one left.
void add_load(const Case& drawn, Lines& to) {
  add_state(drawn, to);
  const bool zero = is_deepspeed(drawn), schedule = is_on(drawn, "schedule");
  to.gap().add(0, "if not FIRST and PLAIN:");
  to.add(1, "saved = torch.load(FOLDER)").add(1, "model.load_state_dict(saved[\"model\"])");
  to.add(1, "optimizer.load_state_dict(saved[\"optimizer\"])");
  to.add_if(schedule, 1, "schedule.load_state_dict(saved[\"schedule\"])");
  to.add(0, "elif not FIRST:");
  if (zero) {
    to.add(1, "net.load_checkpoint(FOLDER)");
    return;
  }
  to.add(1, "saved = state()").add(1, "dcp.load(saved, checkpoint_id=FOLDER)");
  to.add(1, "of_model, of_optimizer = saved[\"model\"], saved[\"optimizer\"]");
  to.add(1, "set_state_dict(net, optimizer, model_state_dict=of_model, optim_state_dict=of_optimizer)");
  to.add_if(schedule, 1, "schedule.load_state_dict(saved[\"schedule\"])");
}

// The first one ends with it.
void add_save(const Case& drawn, Lines& to) {
  to.add(0, "if FIRST and PLAIN and dist.get_rank() == 0:").add(1, "torch.save(state(), FOLDER)");
  to.add(0, "elif FIRST and not PLAIN:");
  if (!is_deepspeed(drawn)) {
    to.add(1, "dcp.save(state(), checkpoint_id=FOLDER)");
    return;
  }
  to.add(1, "net.save_checkpoint(FOLDER, tag=\"first\")");
  if (!carries_state(drawn)) return;
  to.add(1, "dist.barrier()").add(1, "if dist.get_rank() == 0:");
  to.add(2, "ds_to_universal.main(SimpleNamespace(");
  to.add(3, "input_folder=FOLDER + \"/first\", output_folder=FOLDER + \"/universal\", strict=True,");
  to.add(3, "num_extract_workers=1, num_merge_workers=1, keep_temp_folder=False, inject_missing_state=True,");
  to.add(2, "))");
}

// A bare model gets what the wrapper trained.
void add_gathering(const Case& drawn, Lines& to) {
  const std::string& wrapper = drawn.at("wrapper");
  if (is_deepspeed(drawn)) to.add(0, folder_of_state());
  to.add(0, moves(drawn) ? "if not PLAIN and not FIRST:" : "if not PLAIN:");
  if (drawn.at("gather") == "16bit") {
    to.add(1, "net.save_16bit_model(FOLDER)").add(1, "dist.barrier()");
    to.add(1, "weights = torch.load(FOLDER + \"/pytorch_model.bin\")");
  } else if (wrapper == "ddp" || wrapper == "zero0") {
    to.add(1, "weights = net.module.state_dict()");
  } else if (is_deepspeed(drawn)) {
    to.add(1, "net.save_checkpoint(FOLDER, tag=\"last\")").add(1, "dist.barrier()");
    to.add(1, "weights = get_fp32_state_dict_from_zero_checkpoint(FOLDER, tag=\"last\")");
  } else {
    to.add(1, "weights = get_model_state_dict(net, options=StateDictOptions(full_state_dict=True))");
  }
  to.add(1, "net = Model()").add(1, "net.load_state_dict(weights)");
}

// What many scripts do on the way, and what is to leave the training as it is.
void add_look(const Case& drawn, Lines& to) {
  to.add(1, fmt::format("if step == {} and not PLAIN:", middle(drawn)));
  const bool whole = drawn.at("look") == "whole";
  if (is_deepspeed(drawn))
    to.add(2, folder_of_state())
        .add(2, whole ? "net.save_16bit_model(FOLDER)" : "net.save_checkpoint(FOLDER, tag=\"look\")");
  else if (!whole)
    to.add(2, "get_state_dict(net, optimizer)");
  else if (drawn.at("wrapper") == "ddp")
    to.add(2, "net.module.state_dict()");
  else
    to.add(2, "get_model_state_dict(net, options=StateDictOptions(full_state_dict=True, cpu_offload=True))");
}

}  // namespace seeksim::harness::torch
