#include "harness/calibration/scenario_times.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/plan/optimizer_kinds.h"

namespace seeksim::harness::calibration {
namespace {

struct Part {
  const char* name;
  double StepTime::*member;
  const char* what;
};

const std::vector<Part>& parts() {
  static const std::vector<Part> kParts = {
      {"layers", &StepTime::layers_us, "products, attention, memory, what is computed again"},
      {"tensor", &StepTime::tensor_us, "collectives of tensor-parallel ranks that are not hidden"},
      {"sharded", &StepTime::sharded_us, "waiting for sharded parameters, and what hiding it costs"},
      {"head", &StepTime::head_us, "logits and loss"},
      {"sends", &StepTime::sends_us, "messages between pipeline stages"},
      {"bubble", &StepTime::bubble_us, "stages that have nothing to do"},
      {"exchange", &StepTime::exchange_us, "gradients and parameters of data-parallel ranks, not hidden"},
      {"update", &StepTime::update_us, "the optimizer"},
      {"other", &StepTime::other_us, "outside all of this"},
  };
  return kParts;
}

std::string duration(double us) {
  if (us >= 1e6) return fmt::format("{:.3g} s", us / 1e6);
  if (us >= 1e3) return fmt::format("{:.3g} ms", us / 1e3);
  return fmt::format("{:.3g} us", us);
}

std::string size(double bytes) {
  if (bytes >= 1e9) return fmt::format("{:.3g} GB", bytes / 1e9);
  return fmt::format("{:.3g} MB", bytes / 1e6);
}

std::string nodes_text(int nodes) { return nodes == 1 ? "one node" : fmt::format("{} nodes", nodes); }

// NCCL's choice, or that a file says it.
std::string carried(const CollectiveTime& time) {
  return time.measured ? "measured" : fmt::format("{} {}", name(time.algorithm), name(time.protocol));
}

}  // namespace

std::string unknown_part(const Scenario& scenario) {
  const runtime::ModelPlan& m = scenario.train.definition.model;
  if (m.own != nullptr) return "models of one's own";
  if (m.experts.on()) return "layers of experts";
  if (scenario.train.layout.offload.any()) return "what is kept in host memory or in files";
  return "";
}

ScenarioTimes scenario_times(const Scenario& scenario, Platform platform) {
  const runtime::TrainPlan& train = scenario.train;
  const runtime::ModelPlan& m = train.definition.model;
  ScenarioTimes times;
  times.model = {m.layers, m.width, m.heads, m.key_heads(), m.hidden(), m.vocab, m.llama(), m.context, m.tied};
  StepLayout& l = times.layout;
  const runtime::ParallelPlan& parallel = train.layout.parallel;
  l.gpus = scenario.world.ranks();
  l.tensor = parallel.tensor;
  l.pipeline = parallel.pipeline;
  l.context = parallel.context;
  l.chunks = parallel.virtual_stages;
  l.micro_batch = train.layout.micro_batch;
  l.batch = train.definition.global_batch;
  l.sequence_parallel = parallel.sequence_parallel;
  l.recompute = train.layout.checkpointing.any() ? Recompute::full : Recompute::none;
  const int stage = train.layout.zero.stage;
  l.shards = stage == 3 ? Shards::parameters : stage == 0 ? Shards::none : Shards::optimizer;
  l.gradients_shared = stage == 2;
  l.shard_group = parallel.shard_group;
  if (stage == 3) {
    const runtime::ZeroPlan& zero = train.layout.zero;
    l.second_shards = int(zero.hpz_partition);
    const double held = (times.model.layers * times.model.layer_parameters() / l.pipeline +
                         double(times.model.vocab) * times.model.width) /
                        l.tensor;
    l.stays_whole = double(std::min(zero.max_live_parameters, zero.max_reuse_distance)) >= held;
  }
  l.moments = runtime::states_of(train.definition.optimizer);
  if (!platform.node_named) platform.node = std::min(platform.node, scenario.world.ranks_per_node);
  if (!platform.stack_named) platform.stack = stage == 3 ? Stack::eager : Stack::plain;
  l.compiled_loss = platform.stack == Stack::compiled;  // as torchtitan has it since 2025
  times.time = step_time(times.model, l, platform);
  times.memory = step_memory(times.model, l, platform.stack, platform.constants);
  times.collectives = step_collectives(times.model, l, platform);
  times.platform = std::move(platform);
  return times;
}

std::vector<MemoryLine> memory_lines(const ScenarioTimes& times) {
  constexpr double kGB = 1e9;
  const StepMemory& m = times.memory;
  return {{"states", m.states, "parameters, gradients, masters and moments, as they are shared"},
          {"gathered", m.gathered, "parameters that are whole, gradients that wait for their sum"},
          {"activations", m.activations, "what backward reads of the layers"},
          {"head", m.head, "logits and their gradients, or a layer that goes backward"},
          {"allocator", m.reserved, "reserved beside what is in use"},
          {"CUDA and NCCL", times.platform.constants.outside_gb * kGB, "assumed"}};
}

std::string text(const ScenarioTimes& times) {
  const double whole = times.time.us();
  std::string all = fmt::format("  on {}, calibrated: a step takes {}, model FLOPs utilisation {:.3g} %\n",
                                text(times.platform), duration(whole), 100 * times.mfu());
  for (const Part& part : parts()) {
    const double us = times.time.*part.member;
    if (us > 0)
      all += fmt::format("    {:<10} {:>9}  {:>5.1f} %  {}\n", part.name, duration(us), 100 * us / whole, part.what);
  }
  if (!times.collectives.empty()) all += "    alone, a collective of that step takes\n";
  for (const StepCollective& one : times.collectives) {
    const CollectiveTime time = collective_time(one.what, one.bytes, one.group, times.platform);
    all += fmt::format("    {:>8}  {} of {}, {}, {} ranks, {}: {}, {:.3g} GB/s\n", duration(time.us), name(one.what),
                       one.of, size(one.bytes), one.group.ranks, nodes_text(one.group.nodes()), carried(time),
                       bus_bandwidth(one.what, one.bytes, one.group.ranks, time.us));
  }
  all += "    assumed: bf16, fused attention, ranks of a tensor-parallel group side by side, no stragglers\n";
  return all;
}

nlohmann::ordered_json json(const ScenarioTimes& times) {
  nlohmann::ordered_json all = {{"platform", text(times.platform)},
                                {"step_s", times.time.us() / 1e6},
                                {"mfu", times.mfu()},
                                {"parts_s", nlohmann::ordered_json::object()},
                                {"collectives", nlohmann::ordered_json::array()}};
  for (const Part& part : parts()) all["parts_s"][part.name] = times.time.*part.member / 1e6;
  for (const StepCollective& one : times.collectives) {
    const CollectiveTime time = collective_time(one.what, one.bytes, one.group, times.platform);
    all["collectives"].push_back({{"of", one.of},
                                  {"collective", name(one.what)},
                                  {"bytes", one.bytes},
                                  {"ranks", one.group.ranks},
                                  {"nodes", one.group.nodes()},
                                  {"us", time.us},
                                  {"measured", time.measured}});
    if (time.measured) continue;
    all["collectives"].back()["algorithm"] = name(time.algorithm);
    all["collectives"].back()["protocol"] = name(time.protocol);
  }
  return all;
}

}  // namespace seeksim::harness::calibration
