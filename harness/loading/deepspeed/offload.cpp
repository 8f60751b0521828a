#include "harness/loading/deepspeed/offload.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include <nlohmann/json.hpp>

namespace seeksim::harness {
namespace {

using namespace shapes;
using runtime::Home;
using runtime::OffloadOptimizerPlan;
using runtime::OffloadParamPlan;

const Words<Home> kHomes = {{Home::device, "none"}, {Home::host, "cpu"}, {Home::nvme, "nvme"}};

template <class Plan>
bool in_files(const Plan& plan) {
  return plan.home == Home::nvme;
}

bool speculates(const OffloadOptimizerPlan& plan) { return plan.speculates; }

bool uses_files(const runtime::OffloadPlan& plan) { return in_files(plan.optimizer) || in_files(plan.parameters); }

}  // namespace

const Keys<OffloadOptimizerPlan>& offload_optimizer_keys() {
  static const Keys<OffloadOptimizerPlan> keys = {
      {"device", in_words(kHomes, &OffloadOptimizerPlan::home), choice(words_of(kHomes)), kNoBit, "Where to."},
      {"pin_memory", at(&OffloadOptimizerPlan::pin_memory), flag(), kNoBit,
       "Host memory that is locked (world.device.pinned_gib bounds it)."},
      {"ratio", at(&OffloadOptimizerPlan::ratio), number().least(0).most(1), kNoBit,
       "Share of the shard, from its front, that is updated on the host; the rest stays on the device (stage 3)."},
      {"nvme_path", at(&OffloadOptimizerPlan::nvme_path).when(in_files<OffloadOptimizerPlan>), text().or_null().unset(),
       kNoBit, "Folder of the files."},
      {"buffer_count", at(&OffloadOptimizerPlan::buffer_count).when(in_files<OffloadOptimizerPlan>), integer(0), kNoBit,
       "Staging buffers (nvme)."},
      {"pipeline_read", at(&OffloadOptimizerPlan::pipeline_read).when(in_files<OffloadOptimizerPlan>), flag(), kNoBit,
       "The next piece is read while this one is updated (nvme)."},
      {"pipeline_write", at(&OffloadOptimizerPlan::pipeline_write).when(in_files<OffloadOptimizerPlan>), flag(), kNoBit,
       "The last piece is written while this one is updated (nvme)."},
      {"fast_init", by_hand, flag(), kNoBit, ""},
      {"super_offload", at(&OffloadOptimizerPlan::speculates).when(speculates), flag(), kNoBit,
       "The host steps with gradients as they come, before the norm and the vote are known; what was guessed wrong is "
       "left and made again (stage 3, device \"cpu\")."},
      {"cpuadam_cores_perc", by_hand, number().least(0).most(1), kNoBit, ""},
  };
  return keys;
}

const Keys<OffloadParamPlan>& offload_param_keys() {
  static const Keys<OffloadParamPlan> keys = {
      {"device", in_words(kHomes, &OffloadParamPlan::home), choice(words_of(kHomes)), kNoBit, "Where to."},
      {"pin_memory", at(&OffloadParamPlan::pin_memory), flag(), kNoBit, "Host memory that is locked."},
      {"nvme_path", at(&OffloadParamPlan::nvme_path).when(in_files<OffloadParamPlan>), text().or_null().unset(), kNoBit,
       "Folder of the files."},
      {"buffer_count", at(&OffloadParamPlan::buffer_count).when(in_files<OffloadParamPlan>), integer(0), kNoBit,
       "Staging buffers (nvme)."},
      {"buffer_size", at(&OffloadParamPlan::buffer_elements).when(in_files<OffloadParamPlan>), integer(0), kNoBit,
       "Elements of one (nvme)."},
      {"max_in_cpu", at(&OffloadParamPlan::max_in_cpu).when(in_files<OffloadParamPlan>), integer(0), kNoBit,
       "Elements that stay in host memory all the same (nvme)."},
  };
  return keys;
}

const Keys<runtime::AioPlan>& aio_keys() {
  static const Keys<runtime::AioPlan> keys = {
      {"block_size", at(&runtime::AioPlan::block_bytes), integer(512), kNoBit, "Bytes of one request."},
      {"queue_depth", at(&runtime::AioPlan::queue_depth), integer(1), kNoBit, "Requests under way together."},
      {"intra_op_parallelism", by_hand, integer(), kNoBit, ""},
      {"thread_count", by_hand, integer(), kNoBit, ""},
      {"single_submit", by_hand, flag(), kNoBit, ""},
      {"overlap_events", by_hand, flag(), kNoBit, ""},
      {"use_gds", by_hand, flag(), kNoBit, ""},
  };
  return keys;
}

namespace {

// Accepted, and said once.
void say_idle(const Reader& section, std::initializer_list<const char*> keys, Scenario& scenario) {
  std::vector<std::string> idle;
  for (const char* key : keys) {
    if (section.has(key)) idle.emplace_back(key);
  }
  if (idle.empty()) return;
  const std::string name = section.pointer().substr(section.pointer().rfind('/') + 1);
  scenario.notes.push_back(fmt::format("keys of {} without effect here: {}", name, fmt::join(idle, ", ")));
}

// What files need. Home::nvme.
void check_files(const Reader& section, int buffers) {
  if (section.text("nvme_path").empty())
    section.problem("device", "\"nvme\" needs nvme_path", "Add it: the folder of the files.");
  if (buffers == 0) section.problem("buffer_count", "0 buffers: nothing can be read or written", "Use 2 or more.");
}

// DeepSpeed takes the section and does nothing with it.
void say_ignored(const char* name, int stage, const char* stages, Scenario& scenario) {
  scenario.notes.push_back(
      fmt::format("zero_optimization.{} is ignored at stage {}, as in DeepSpeed: it acts at {}", name, stage, stages));
}

void read_optimizer(const Reader& section, int stage, Scenario& scenario) {
  OffloadOptimizerPlan& plan = scenario.train.layout.offload.optimizer;
  plan = {};
  offload_optimizer_keys().read(section, plan);
  refuse_to_leave(section, "nvme_path");
  if (plan.ratio < 1 && stage != 3) {
    section.problem("ratio", "Partial offloading only supported for ZeRO Stage 3.", "Use 1.");
  } else if (plan.ratio < 1 && plan.home != Home::device) {
    section.problem("ratio", "Not supported: less than 1", "Use 1; this does not change results.");
  }
  if (plan.home == Home::device) {
    plan = {};
    return;
  }
  if (stage == 0) {
    say_ignored("offload_optimizer", stage, "stages 1 to 3", scenario);
    plan = {};
    return;
  }
  if (plan.home == Home::nvme) check_files(section, plan.buffer_count);
  plan.buffer_count = std::clamp(plan.buffer_count, 1, 1 << 20);
  if (plan.home == Home::nvme && (plan.pipeline_read || plan.pipeline_write) && plan.buffer_count < 2) {
    section.problem("buffer_count", fmt::format("Not enough buffers {} for swapping 2", plan.buffer_count),
                    "A pipeline needs two buffers at least.");
  }
  say_idle(section, {"fast_init", "cpuadam_cores_perc"}, scenario);
  if (plan.speculates && (stage != 3 || plan.home != Home::host)) {
    scenario.notes.push_back("super_offload is ignored: it acts at stage 3 with device \"cpu\"");
    plan.speculates = false;
  }
}

void read_parameters(const Reader& section, int stage, Scenario& scenario) {
  OffloadParamPlan& plan = scenario.train.layout.offload.parameters;
  plan = {};
  offload_param_keys().read(section, plan);
  refuse_to_leave(section, "nvme_path");
  if (plan.home == Home::device) {
    plan = {};
    return;
  }
  if (stage != 3) {
    say_ignored("offload_param", stage, "stage 3", scenario);
    plan = {};
    return;
  }
  if (plan.home == Home::nvme) check_files(section, plan.buffer_count);
  plan.buffer_count = std::clamp(plan.buffer_count, 1, 1 << 20);
  plan.buffer_elements = std::max<std::int64_t>(plan.buffer_elements, 1);
  plan.max_in_cpu = std::max<std::int64_t>(plan.max_in_cpu, 0);
  if (scenario.train.layout.offload.optimizer.home == Home::device) {
    section.problem("device", "Not supported: parameters offloaded while the optimizer stays on the device",
                    "Offload the optimizer too: \"offload_optimizer\": {\"device\": \"cpu\"}.");
  }
  if (scenario.train.layout.offload.optimizer.speculates)
    section.problem("device", "Not supported: super_offload with parameters off the device",
                    "Leave one of the two out.");
  if (plan.home != Home::nvme) say_idle(section, {"nvme_path", "buffer_count", "buffer_size", "max_in_cpu"}, scenario);
}

void read_aio(const Reader& section, Scenario& scenario) {
  runtime::AioPlan& plan = scenario.train.layout.offload.aio;
  plan = {};
  if (!uses_files(scenario.train.layout.offload)) return;
  aio_keys().read(section, plan);
  plan.block_bytes = std::max<decltype(plan.block_bytes)>(plan.block_bytes, 1);
  plan.queue_depth = std::clamp(plan.queue_depth, 1, 1 << 20);
  say_idle(section, {"intra_op_parallelism", "thread_count", "single_submit", "overlap_events", "use_gds"}, scenario);
}

}  // namespace

void read_offload(const Reader& section, Scenario& scenario) {
  const Reader zero = section.child("zero_optimization");
  const int stage = scenario.train.layout.zero.stage;
  read_optimizer(zero.child("offload_optimizer"), stage, scenario);
  read_parameters(zero.child("offload_param"), stage, scenario);
  read_aio(section.child("aio"), scenario);
}

void write_offload(const Scenario& scenario, Json& section) {
  const runtime::OffloadPlan& plan = scenario.train.layout.offload;
  Json& zero = section["zero_optimization"];
  if (plan.optimizer.home != Home::device) zero["offload_optimizer"] = offload_optimizer_keys().written(plan.optimizer);
  if (in_files(plan.optimizer)) zero["sub_group_size"] = scenario.train.layout.zero.sub_group_elements;
  if (plan.parameters.home != Home::device) zero["offload_param"] = offload_param_keys().written(plan.parameters);
  // Last: another key of the section may move what `zero` refers to.
  if (uses_files(plan)) section["aio"] = aio_keys().written(plan.aio);
}

bool offload_key_acts(const std::string& key, const Scenario& scenario) {
  const runtime::OffloadPlan& plan = scenario.train.layout.offload;
  if (key == "offload_optimizer") return plan.optimizer.home != Home::device;
  if (key == "offload_param") return plan.parameters.home != Home::device;
  if (key == "aio") return uses_files(plan);
  if (key == "sub_group_size") return plan.optimizer.home == Home::nvme;
  return false;
}

}  // namespace seeksim::harness
