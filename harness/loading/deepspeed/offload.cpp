#include "harness/loading/deepspeed/offload.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include <nlohmann/json.hpp>

namespace seeksim::harness {
namespace {

using runtime::Home;

constexpr double kGib = double(std::size_t(1) << 30);

Home home_of(const Reader& section) {
  const std::string device = section.text("device", "none");
  return device == "cpu" ? Home::host : device == "nvme" ? Home::nvme : Home::device;
}

const char* device_of(Home home) { return home == Home::host ? "cpu" : home == Home::nvme ? "nvme" : "none"; }

bool in_files(const runtime::OffloadPlan& plan) {
  return plan.optimizer.home == Home::nvme || plan.parameters.home == Home::nvme;
}

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

void read_optimizer(const Reader& section, int stage, Scenario& scenario) {
  runtime::OffloadOptimizerPlan& plan = scenario.train.layout.offload.optimizer;
  plan = {};
  plan.home = home_of(section);
  if (plan.home == Home::device) return;
  if (stage == 0) {
    section.problem("device", "the optimizer is offloaded by ZeRO, and the stage is 0",
                    "Use stage 1, 2 or 3, or remove offload_optimizer.");
  }
  if (plan.home == Home::nvme && !section.has("nvme_path"))
    section.problem("device", "\"nvme\" needs nvme_path", "Add it: the folder of the files.");
  plan.nvme_path = section.text("nvme_path", plan.nvme_path);
  plan.buffer_count = int(std::clamp<std::int64_t>(section.integer("buffer_count", plan.buffer_count), 1, 1 << 20));
  plan.pipeline_read = section.flag("pipeline_read", plan.pipeline_read);
  plan.pipeline_write = section.flag("pipeline_write", plan.pipeline_write);
  if (plan.home == Home::nvme && (plan.pipeline_read || plan.pipeline_write) && plan.buffer_count < 2) {
    section.problem("buffer_count", fmt::format("Not enough buffers {} for swapping 2", plan.buffer_count),
                    "A pipeline needs two buffers at least.");
  }
  plan.pin_memory = section.flag("pin_memory", plan.pin_memory);
  plan.ratio = section.number("ratio", 1.0);
  if (plan.ratio < 1) section.problem("ratio", "Not in this version: less than 1", "Use 1; it decides no bit.");
  say_idle(section, {"fast_init", "super_offload", "cpuadam_cores_perc"}, scenario);
}

void read_parameters(const Reader& section, int stage, Scenario& scenario) {
  runtime::OffloadParamPlan& plan = scenario.train.layout.offload.parameters;
  plan = {};
  plan.home = home_of(section);
  if (plan.home == Home::device) return;
  if (stage != 3) {
    section.problem("device", "parameters are offloaded at ZeRO stage 3 only",
                    "Use stage 3, or remove offload_param (DeepSpeed ignores it below).");
  }
  plan.pin_memory = section.flag("pin_memory", plan.pin_memory);
  if (plan.home == Home::nvme && !section.has("nvme_path"))
    section.problem("device", "\"nvme\" needs nvme_path", "Add it: the folder of the files.");
  plan.nvme_path = section.text("nvme_path", plan.nvme_path);
  plan.buffer_count = int(std::clamp<std::int64_t>(section.integer("buffer_count", plan.buffer_count), 1, 1 << 20));
  plan.buffer_elements = std::max<std::int64_t>(section.integer("buffer_size", plan.buffer_elements), 1);
  plan.max_in_cpu = std::max<std::int64_t>(section.integer("max_in_cpu", plan.max_in_cpu), 0);
  if (scenario.train.layout.offload.optimizer.home == Home::device) {
    section.problem("device", "Not in this version: parameters offloaded while the optimizer stays on the device",
                    "Offload the optimizer too: \"offload_optimizer\": {\"device\": \"cpu\"}.");
  }
  if (plan.home != Home::nvme) say_idle(section, {"nvme_path", "buffer_count", "buffer_size", "max_in_cpu"}, scenario);
}

void read_aio(const Reader& section, Scenario& scenario) {
  runtime::AioPlan& plan = scenario.train.layout.offload.aio;
  plan = {};
  if (!in_files(scenario.train.layout.offload)) return;
  plan.block_bytes = std::max<std::int64_t>(section.integer("block_size", plan.block_bytes), 1);
  plan.queue_depth = int(std::clamp<std::int64_t>(section.integer("queue_depth", plan.queue_depth), 1, 1 << 20));
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
  const runtime::OffloadOptimizerPlan& o = plan.optimizer;
  if (o.home != Home::device)
    zero["offload_optimizer"] = {{"device", device_of(o.home)}, {"pin_memory", o.pin_memory}, {"ratio", o.ratio}};
  if (o.home == Home::nvme) {
    zero["offload_optimizer"].update({{"nvme_path", o.nvme_path},
                                      {"buffer_count", o.buffer_count},
                                      {"pipeline_read", o.pipeline_read},
                                      {"pipeline_write", o.pipeline_write}});
    zero["sub_group_size"] = scenario.train.layout.zero.sub_group_elements;
  }
  if (plan.parameters.home != Home::device) {
    zero["offload_param"] = {{"device", device_of(plan.parameters.home)}, {"pin_memory", plan.parameters.pin_memory}};
  }
  if (plan.parameters.home == Home::nvme) {
    zero["offload_param"].update({{"nvme_path", plan.parameters.nvme_path},
                                  {"buffer_count", plan.parameters.buffer_count},
                                  {"buffer_size", plan.parameters.buffer_elements},
                                  {"max_in_cpu", plan.parameters.max_in_cpu}});
  }
  // Last: another key of the section may move what `zero` refers to.
  if (in_files(plan)) section["aio"] = {{"block_size", plan.aio.block_bytes}, {"queue_depth", plan.aio.queue_depth}};
}

bool offload_key_acts(const std::string& key, const Scenario& scenario) {
  const runtime::OffloadPlan& plan = scenario.train.layout.offload;
  if (key == "offload_optimizer") return plan.optimizer.home != Home::device;
  if (key == "offload_param") return plan.parameters.home != Home::device;
  if (key == "aio") return in_files(plan);
  if (key == "sub_group_size") return plan.optimizer.home == Home::nvme;
  return false;
}

void read_storage(const Reader& world, sim::WorldPlan& plan) {
  const auto bytes = [](const Reader& section, const char* key, double otherwise) {
    return std::min(1e6, section.number(key, otherwise / kGib)) * kGib;
  };
  const Reader device = world.child("device"), storage = world.child("storage");
  sim::DeviceModel& d = plan.device;
  d.host_capacity_bytes = std::size_t(bytes(device, "host_memory_gib", double(d.host_capacity_bytes)));
  d.pinned_capacity_bytes = std::size_t(bytes(device, "pinned_gib", double(d.pinned_capacity_bytes)));
  d.copy_bytes_per_ns = device.number("copy_gb_s", d.copy_bytes_per_ns);
  sim::StorageModel& s = plan.storage;
  s.latency_ns = runtime::TimeNs(storage.number("latency_us", double(s.latency_ns) / 1e3) * 1e3);
  s.read_bytes_per_ns = storage.number("read_gb_s", s.read_bytes_per_ns);
  s.write_bytes_per_ns = storage.number("write_gb_s", s.write_bytes_per_ns);
  s.capacity_bytes = std::uint64_t(bytes(storage, "capacity_gib", double(s.capacity_bytes)));
}

void write_storage(const sim::WorldPlan& plan, Json& world) {
  world["device"]["host_memory_gib"] = double(plan.device.host_capacity_bytes) / kGib;
  world["device"]["pinned_gib"] = double(plan.device.pinned_capacity_bytes) / kGib;
  world["device"]["copy_gb_s"] = plan.device.copy_bytes_per_ns;
  world["storage"] = {{"latency_us", double(plan.storage.latency_ns) / 1e3},
                      {"read_gb_s", plan.storage.read_bytes_per_ns},
                      {"write_gb_s", plan.storage.write_bytes_per_ns},
                      {"capacity_gib", double(plan.storage.capacity_bytes) / kGib}};
}

}  // namespace seeksim::harness
