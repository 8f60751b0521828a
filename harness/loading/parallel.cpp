#include "harness/loading/parallel.h"

#include <fmt/format.h>

#include <algorithm>

#include "harness/scenario/variants.h"
#include "runtime/layout/grid.h"
#include "runtime/layout/model_limits.h"
#include "runtime/layout/parameters.h"
#include "runtime/layout/shard_groups.h"
#include "runtime/plan/optimizer_kinds.h"

namespace seeksim::harness {
namespace {

using runtime::ParallelPlan;
using runtime::PipelineSchedule;

// The largest piece as small as it can be, as DeepSpeed's partition method "parameters": layers by their parameters,
// the embeddings with the first one, the last norm and the head with the last one.
std::vector<int> by_parameters(const runtime::ModelPlan& model, int pieces) {
  std::vector<std::int64_t> weights(std::size_t(std::max(model.layers, 0)));
  if (pieces < 1 || model.layers < pieces || !runtime::problem(model).empty()) return {};  // said elsewhere
  for (const runtime::ParameterInfo& p : runtime::whole_model(model, false))
    weights[std::size_t(std::clamp(p.module - 1, 0, model.layers - 1))] += p.size;
  const std::vector<int> bounds = runtime::partition_balanced(weights, pieces);
  std::vector<int> layers;
  for (std::size_t i = 0; i + 1 < bounds.size(); ++i) layers.push_back(bounds[i + 1] - bounds[i]);
  return layers;
}

void read_pieces(const Reader& world, const runtime::ModelPlan& model, ParallelPlan& plan) {
  const Json* list = world.find("pipeline_layers");
  if (list == nullptr) return;
  if (list->is_string() && *list != "parameters") {
    world.problem("pipeline_layers", fmt::format("{} is no way to cut layers", list->dump()),
                  "Use \"parameters\", or a list of layers a piece.");
  } else if (list->is_string()) {
    plan.layers = by_parameters(model, plan.pieces());
  }
  if (!list->is_array()) return;
  for (const Json& layers : *list) {
    if (layers.is_number_integer()) plan.layers.push_back(int(layers.get<std::int64_t>()));
  }
}

// What cannot run on a model that is cut, whatever the rest is.
void refuse_with_cut_models(const Reader& top, const Scenario& scenario) {
  const runtime::TrainPlan& train = scenario.train;
  const auto refuse = [&](const char* at, const std::string& what, const char* fix) {
    top.findings().add(at, what, fix);
  };
  constexpr const char* kCut = "together with world.pipeline, world.tensor, world.expert or world.context above 1";
  if (train.definition.quirks.without(runtime::Quirk::experts_by_micro_batch).any())
    refuse("/quirks", fmt::format("not supported: quirks {}", kCut), "Leave quirks out, or use 1 for all of them.");
  if (train.recovery.rerun_and_compare)
    refuse("/recovery/rerun_and_compare", fmt::format("not supported: running micro-batches twice {}", kCut),
           "Turn one of them off.");
  if (kind_of(train.definition.optimizer).takes_matrices && train.layout.parallel.tensor > 1)
    refuse("/world/tensor", "not supported: Muon takes matrices as wholes, and tensor parallelism cuts them",
           "Use 1 for world.tensor, or AdamW.");
  if (train.recovery.memory_ladder && train.layout.parallel.expert > 1)
    refuse("/recovery/memory_ladder", "not supported: the memory ladder with experts that are divided among ranks",
           "Turn one of them off.");
}

// Formulas of ranks that each have every layer, and all of it or the experts of a group.
void refuse_formulas(const Reader& top, const Scenario& scenario) {
  const ParallelPlan& plan = scenario.train.layout.parallel;
  if (plan.pipeline * plan.tensor == 1) return;
  for (std::size_t i = 0; i < scenario.checks.size(); ++i) {
    for (const char* formula : {"memory_formula", "traffic_formula", "model_state_gb"}) {
      if (scenario.checks[i].name != formula) continue;
      top.findings().add(fmt::format("/checks/{}", i),
                         fmt::format("not supported: {} where layers are on several ranks", formula),
                         "Leave it out, or use 1 for world.pipeline and world.tensor.");
    }
  }
}

// Of a rule of somebody's also in worlds with other numbers of micro-batches, since ranks may leave and join.
std::string problem_of_schedule(const Scenario& scenario) {
  const ParallelPlan& plan = scenario.train.layout.parallel;
  const int micro_batches = micro_batches_of_replica(scenario);
  if (micro_batches == 0) return "";  // said elsewhere
  constexpr int kCountsTried = 64;
  for (int count = 1; plan.schedule_rule != nullptr && count <= std::min(2 * micro_batches, kCountsTried); ++count) {
    if (const std::string why = runtime::problem(runtime::pipeline_shape(plan, count)); !why.empty())
      return fmt::format("{} with {} micro-batch{}: {}", plan.own_schedule, count, count == 1 ? "" : "es", why);
  }
  return runtime::problem_of_schedule(scenario.train, data_size(scenario));
}

void check_schedule(const Reader& top, const Scenario& scenario) {
  const runtime::TrainPlan& train = scenario.train;
  const ParallelPlan& plan = train.layout.parallel;
  if (plan.pipeline == 1) return;
  if (scenario.strict_deepspeed && train.layout.zero.stage >= 2) {
    top.findings().add("/deepspeed/zero_optimization/stage",
                       "ZeRO-2 and ZeRO-3 are incompatible with pipeline parallelism",
                       "Use stage 0 or 1; or leave strict_deepspeed out, since seeksim can do it.");
  }
  if (const std::string why = problem_of_schedule(scenario); !why.empty())
    top.findings().add("/world/schedule", why,
                       "Change pipeline, virtual_stages, the micro-batch size or the schedule.");
}

}  // namespace

std::int64_t ranks_per_node(const Reader& world, std::int64_t nodes) {
  const bool per_node = world.has("ranks_per_node"), replicas = world.has("replicas");
  if (per_node == replicas) {
    world.problem("", per_node ? "both ranks_per_node and replicas are given" : "the number of ranks is missing",
                  "Give one of ranks_per_node and replicas.");
    return 0;
  }
  if (per_node) return world.integer("ranks_per_node", 0);
  const std::int64_t ranks = world.integer("replicas", 0) * world.integer("pipeline", 1) * world.integer("tensor", 1) *
                             world.integer("context", 1);
  if (nodes < 1 || ranks < 1) return 0;
  if (ranks % nodes == 0) return ranks / nodes;
  world.problem("replicas", fmt::format("{} ranks cannot be split evenly over {} nodes", ranks, nodes),
                "Change nodes or replicas.");
  return 0;
}

int read_parallel(const Reader& world, int ranks, Scenario& scenario) {
  ParallelPlan& plan = scenario.train.layout.parallel;  // as the rows of world_keys() have filled it
  const bool interleaved = plan.schedule == PipelineSchedule::interleaved && plan.pipeline > 1;
  plan.virtual_stages = int(world.integer("virtual_stages", interleaved ? 2 : 1));
  if (plan.pipeline < 1 || plan.tensor < 1 || plan.expert < 1 || plan.context < 1 || plan.pipeline > 4096 ||
      plan.tensor > 8 || plan.context > 8) {
    plan = {};
    return 0;  // the schema said so
  }
  if (plan.virtual_stages < 1) plan = {};  // the schema said so
  if (plan.virtual_stages > 1 && plan.schedule != PipelineSchedule::interleaved) {
    world.problem("virtual_stages", "only the interleaved schedule has several pieces of the model on a stage",
                  "Add \"schedule\": \"interleaved\".");
    plan.virtual_stages = 1;
  }
  if (plan.sequence_parallel && plan.tensor == 1) {
    scenario.notes.push_back("world.sequence_parallel has no effect without tensor parallelism");
    plan.sequence_parallel = false;
  }
  if (plan.pipeline == 1 && plan.virtual_stages > 1) {
    world.problem("virtual_stages", "one stage has one piece of the model", "Use \"pipeline\": 2 or more.");
    plan.virtual_stages = 1;
  }
  read_pieces(world, scenario.train.definition.model, plan);
  if (plan.context_zigzag && plan.context == 1) {
    scenario.notes.push_back("world.context_cut has no effect without context parallelism");
    plan.context_zigzag = false;
  }
  if (plan.ring_attention && plan.context == 1) {
    scenario.notes.push_back("world.context_attention has no effect without context parallelism");
    plan.ring_attention = false;
  }
  const int sharing = ranks / plan.ranks_of_sample();  // the batch
  if (plan.expert > 1 && plan.context == 1 && ranks > 0 && ranks % plan.ranks_of_sample() == 0 &&
      sharing % plan.expert != 0) {
    world.problem(
        "expert",
        fmt::format("experts are divided over {} of the ranks that share the batch: their number, {}, must be "
                    "a multiple of {}",
                    plan.expert, sharing, plan.expert),
        "Change the number of ranks, or expert.");
    return 0;
  }
  if (ranks > 0 && ranks % plan.ranks_of_sample() != 0) {
    const std::string spans = plan.context > 1 ? fmt::format("a sample's tokens are on {} ranks", plan.context)
                                               : fmt::format(
                                                     "a copy of the model spans {} pipeline stages x {} "
                                                     "tensor-parallel ranks",
                                                     plan.pipeline, plan.tensor);
    world.problem(
        "", fmt::format("{}: the number of ranks, {}, must be a multiple of {}", spans, ranks, plan.ranks_of_sample()),
        fmt::format("Use a multiple of {} ranks.", plan.ranks_of_sample()));
    return 0;
  }
  return sharing;
}

void check_parallel(const Reader& top, const Scenario& scenario) {
  const ParallelPlan& plan = scenario.train.layout.parallel;
  const runtime::ModelPlan& model = scenario.train.definition.model;
  if ((plan.alone() && plan.layers.empty()) || !runtime::problem(model).empty()) return;  // read_model said it
  std::string why = runtime::problem(model, plan);
  if (plan.context > 1 && !model.segmented_gradients) why.clear();                 // check_context() says it
  if (plan.tensor > 1 && model.experts.on() && !model.experts.slabs) why.clear();  // check_experts() does
  if (!why.empty()) {
    const char* place = plan.expert > 1    ? "/world/expert"
                        : plan.context > 1 ? "/world/context"
                        : plan.tensor > 1  ? "/world/tensor"
                        : plan.alone()     ? "/world/pipeline_layers"
                                           : "/world/pipeline";
    top.findings().add(place, std::move(why), "");
  }
  if (plan.alone()) return;
  refuse_with_cut_models(top, scenario);
  refuse_formulas(top, scenario);
  check_schedule(top, scenario);
}

}  // namespace seeksim::harness
