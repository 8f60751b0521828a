#include "harness/loading/deepspeed/activation_checkpointing.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace seeksim::harness {
namespace {

using namespace shapes;
using runtime::CheckpointingPlan;

// DeepSpeed's switches that change nothing here, and why.
struct IdleSwitch {
  const char* name;
  const char* why;
};
constexpr IdleSwitch kIdle[] = {
    {"partition_activations", "there are no tensor-parallel ranks to split them over"},
    {"contiguous_memory_optimization", "checkpoints are allocated once, before the first step"},
    {"synchronize_checkpoint_boundary", "copies and recomputation are ordered by events"},
    {"profile", "every launch is in the trace"},
};

std::vector<int> read_layers(const Reader& own, int layers) {
  std::vector<int> chosen;
  const Json* list = own.find("layers");
  if (list == nullptr || !list->is_array()) return chosen;
  for (std::size_t i = 0; i < list->size(); ++i) {
    if (!(*list)[i].is_number_integer()) continue;  // the schema said so
    const std::int64_t layer = (*list)[i].get<std::int64_t>();
    if (layer >= layers) {
      own.findings().add(fmt::format("{}/{}", own.at("layers"), i), fmt::format("there is no layer {}", layer),
                         fmt::format("Layers go from 0 to {}.", layers - 1));
    }
    chosen.push_back(int(std::min<std::int64_t>(layer, layers)));
  }
  std::sort(chosen.begin(), chosen.end());
  chosen.erase(std::unique(chosen.begin(), chosen.end()), chosen.end());
  return chosen;
}

void name_idle_switches(const Reader& switches, bool any, Scenario& scenario) {
  std::vector<std::string> idle;
  for (const IdleSwitch& one : kIdle) {
    if (switches.has(one.name)) idle.push_back(fmt::format("{} ({})", one.name, one.why));
  }
  if (!any && switches.flag("cpu_checkpointing", false)) idle.push_back("cpu_checkpointing (nothing is checkpointed)");
  if (!idle.empty()) {
    scenario.notes.push_back(
        fmt::format("deepspeed keys without effect here: activation_checkpointing.{}", fmt::join(idle, ", ")));
  }
  if (!any && switches.value() != nullptr) {
    scenario.notes.push_back(
        "activation_checkpointing alone recomputes nothing, as in DeepSpeed, where the model calls it: say "
        "number_checkpoints, or \"checkpointing\": {\"every\": 1}");
  }
}

}  // namespace

const Keys<CheckpointingPlan>& checkpointing_keys() {
  static const Keys<CheckpointingPlan> keys = {
      {"every", at(&CheckpointingPlan::every).read_by_hand().unless_standard(), integer(0), kNoBit,
       "Layers a segment; 0: off."},
      {"layers", at(&CheckpointingPlan::layers).read_by_hand().unless_standard(), list(integer(0)), kNoBit,
       "Or just these, each a segment of its own."},
  };
  return keys;
}

const Keys<CheckpointingPlan>& activation_checkpointing_keys() {
  static const Keys<CheckpointingPlan> keys = {
      {"number_checkpoints", by_hand, integer(1).or_null(), kNoBit,
       "Number of segments of consecutive layers. Only the input of each is kept. Unset: as \"checkpointing\" says."},
      {"cpu_checkpointing", at(&CheckpointingPlan::on_host).read_by_hand().unless_standard(), flag(), kNoBit,
       "Keep those inputs in pinned host memory, with two places on the device."},
      {"partition_activations", by_hand, flag(), kNoBit, "No effect here."},
      {"contiguous_memory_optimization", by_hand, flag(), kNoBit, "No effect here."},
      {"synchronize_checkpoint_boundary", by_hand, flag(), kNoBit, "No effect here."},
      {"profile", by_hand, flag(), kNoBit, "No effect here."},
  };
  return keys;
}

void read_checkpointing(const Reader& top, Scenario& scenario) {
  const Reader switches = top.child("deepspeed").child("activation_checkpointing"), own = top.child("checkpointing");
  const int layers = scenario.train.definition.model.layers;
  runtime::CheckpointingPlan plan;
  plan.every = int(std::clamp<std::int64_t>(own.integer("every", 0), 0, std::max(layers, 0)));
  plan.layers = read_layers(own, layers);
  if (plan.every > 0 && !plan.layers.empty())
    own.problem("layers", "there is \"every\" too, which names all layers", "Keep one of the two.");
  const std::int64_t segments = switches.integer("number_checkpoints", 0);
  if (segments > 0 && layers > 0) {
    if (plan.any())
      own.problem("", "there is deepspeed.activation_checkpointing.number_checkpoints too", "Keep one of the two.");
    plan.every = int((layers + segments - 1) / segments);
  }
  plan.on_host = plan.any() && switches.flag("cpu_checkpointing", false);
  name_idle_switches(switches, plan.any(), scenario);
  scenario.train.layout.checkpointing = plan;
}

}  // namespace seeksim::harness
