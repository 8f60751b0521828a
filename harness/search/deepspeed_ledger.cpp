#include "harness/search/deepspeed_ledger.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "harness/calibration/platform.h"
#include "runtime/layout/parameters.h"
#include "runtime/layout/shard_groups.h"
#include "runtime/plan/optimizer_kinds.h"

namespace seeksim::harness {
namespace {

using runtime::ModelPlan;

// What the allocator has beside what is asked for: of 28 runs of BLOOM (tests/calibration/ledger_test.cpp).
constexpr double kAllocatorShare = 0.205;
constexpr double kGB = 1e9;

// The rank whose part of the model is the largest.
struct Part {
  double parameters = 0;
  double experts = 0;         // of them, those of experts that are divided among ranks
  double largest_module = 0;  // elements of the parameters that one module holds by itself
  int layers = 0;
  bool heads = false;
};

Part part_of(const ModelPlan& model, const runtime::ParallelPlan& parallel, int stage) {
  const runtime::Parameters here(model, true, runtime::model_part(model, parallel, stage, 0));
  Part part;
  part.parameters = double(here.size());
  part.heads = here.heads();
  for (const runtime::ParameterInfo& p : here.all())
    if (here.part().cuts_experts(p)) part.experts += double(p.size);
  for (const runtime::ModelPiece& piece : here.pieces()) part.layers += piece.layers();
  // A weight and its bias are one module of torch's; an embedding and a projection are another.
  std::map<std::string, double> modules;
  for (const runtime::ParameterInfo& p : here.all()) {
    const std::string name = p.name;
    modules[fmt::format("{} {}", p.module, name.substr(0, name.rfind('.')))] += double(p.size);
  }
  for (const auto& [name, elements] : modules) part.largest_module = std::max(part.largest_module, elements);
  return part;
}

Part largest_part(const Scenario& scenario) {
  const runtime::ParallelPlan& parallel = scenario.train.layout.parallel;
  Part largest;
  for (int stage = 0; stage < std::max(1, parallel.pipeline); ++stage) {
    const Part one = part_of(scenario.train.definition.model, parallel, stage);
    if (one.parameters > largest.parameters) largest = one;
  }
  return largest;
}

int copies_of(const Scenario& scenario) {
  const runtime::ParallelPlan& parallel = scenario.train.layout.parallel;
  // Those of a sequence-parallel group have shards of their own: DeepSpeed cuts over data and sequence ranks.
  return std::max(1, scenario.world.ranks() / std::max(1, parallel.pipeline * parallel.tensor));
}

bool is_half(const Scenario& scenario) {
  return scenario.train.definition.precision.compute != runtime::ElementType::f32;
}

// Bytes a parameter, each sharded from some stage on.
struct State {
  double bytes;
  int sharded_from;
};

// DeepSpeed's Muon has one for a matrix, and AdamW's two for the rest.
double moments_of(const runtime::Definition& d) {
  const runtime::OptimizerKind& kind = runtime::kind_of(d.optimizer);
  if (!kind.takes_matrices) return runtime::moments_of(d.optimizer);
  double all = 0, of_matrices = 0;
  const runtime::Parameters parameters(d.model, d.optimizer);
  for (const runtime::ParameterInfo* p : parameters.trainable()) {
    all += double(p->size);
    of_matrices += p->matrices.empty() ? 0 : double(p->size);
  }
  return runtime::moments_of(d.optimizer) - of_matrices / all;
}

// DeepSpeed gives a pipeline in bf16 its BF16_Optimizer where ZeRO is off: gradients once more in fp32, whole, and
// masters and moments shared by the data-parallel ranks.
bool has_bf16_optimizer(const Scenario& scenario) {
  return scenario.train.definition.precision.compute == runtime::ElementType::bf16 &&
         scenario.train.layout.zero.stage == 0 && scenario.train.layout.parallel.pipeline > 1;
}

LedgerLine states(const Scenario& scenario, const Part& part) {
  const int stage = scenario.train.layout.zero.stage;
  const int ranks = runtime::shard_groups(scenario.train.layout, copies_of(scenario)).size;
  const runtime::OffloadPlan& offload = scenario.train.layout.offload;
  const bool half = is_half(scenario);
  const double stored = half ? 2 : 4;
  // Parameters; gradients, which stage 3 has in fp32 alone; then fp32 gradients, masters and moments of the optimizer.
  const double moments = 4 * moments_of(scenario.train.definition);
  std::vector<State> all = {{stored, 3}, {half && stage == 3 ? 0 : stored, 2}, {(half ? 8 : 0) + moments, 1}};
  if (has_bf16_optimizer(scenario)) all = {{stored + stored + 4, 1}, {4 + moments, 0}};
  if (offload.optimizer.home != runtime::Home::device) all = {{stored, 3}};
  if (offload.parameters.home != runtime::Home::device) all = {};
  double each = 0, of_expert = 0;  // an expert's is sharded over the ranks that have it
  for (const State& state : all) {
    each += state.bytes / (stage >= state.sharded_from ? ranks : 1);
    of_expert +=
        state.bytes / (stage >= state.sharded_from ? std::max(1, ranks / scenario.train.layout.parallel.expert) : 1);
  }
  double bytes = each * (part.parameters - part.experts) + of_expert * part.experts;
  std::string formula = fmt::format("{:.4g} bytes a parameter", each);
  if (part.experts > 0) formula += fmt::format(", {:.4g} of experts", of_expert);
  if (stage == 3) {  // a module whole, with its gradient
    bytes += 2 * stored * part.largest_module;
    formula += fmt::format(", {:.0f} of the largest module's", 2 * stored);
  }
  return {"model states", bytes, formula};
}

// Of one token in one layer, in elements: what backward needs where attention keeps no probabilities. Tensor ways
// share all but the stream before both branches and both norms' outputs, unless these are scattered.
double stream_of_a_layer(const ModelPlan& m) { return 4.0 * m.width; }
double kept_inside_a_layer(const ModelPlan& m) {
  const double C = m.width, F = m.hidden();
  const double keys = 2.0 * m.width / m.heads * m.key_heads();
  const double common = C + keys + C;          // q, k, v; attention's output
  if (!m.llama()) return common + 2 * F;       // before and behind the GELU
  if (!m.experts.on()) return common + 3 * F;  // gate, up and their product
  const double routed = m.experts.layers(m.layers) / double(m.layers);
  return common + 3 * (routed * F * (m.experts.per_token + m.experts.shared) + (1 - routed) * m.dense_hidden());
}

LedgerLine activations(const Scenario& scenario, const Part& part) {
  const ModelPlan& m = scenario.train.definition.model;
  const runtime::Layout& layout = scenario.train.layout;
  const double element = is_half(scenario) ? 2 : 4, ways = std::max(1, layout.parallel.tensor);
  const double tokens = double(layout.micro_batch) * m.context / layout.parallel.context;
  // A first stage of 1F1B has as many micro-batches under way as there are stages.
  const double under_way = std::min(std::max(1, layout.parallel.pipeline), std::max(1, scenario.accumulation));
  const double stream_ways = layout.parallel.sequence_parallel ? ways : 1;
  const double whole = element * tokens * (stream_of_a_layer(m) / stream_ways + kept_inside_a_layer(m) / ways);
  const double output = layout.parallel.pipeline > 1 ? element * tokens * m.width / stream_ways : 0;  // until backward
  if (!layout.checkpointing.any())
    return {"activations", under_way * (part.layers * whole + output),
            "whole layers, without attention's probabilities"};
  const double segment = std::max(1, layout.checkpointing.every);
  const double inputs =
      layout.checkpointing.on_host ? 0 : element * tokens * m.width / stream_ways * part.layers / segment;
  return {"activations", under_way * (inputs + output) + segment * whole, "inputs of segments, and one segment whole"};
}

LedgerLine logits(const Scenario& scenario, const Part& part) {
  const ModelPlan& m = scenario.train.definition.model;
  const double element = is_half(scenario) ? 2 : 4, ways = std::max(1, scenario.train.layout.parallel.tensor);
  const double tokens = double(scenario.train.layout.micro_batch) * m.context / scenario.train.layout.parallel.context;
  return {"logits", part.heads ? tokens * m.vocab / ways * (element + 8) : 0,
          "as stored, in fp32, and the gradient of these"};
}

LedgerLine buckets(const Scenario& scenario, const Part& part) {
  const runtime::ZeroPlan& zero = scenario.train.layout.zero;
  const double element = is_half(scenario) ? 2 : 4;
  const auto at_most = [&](std::int64_t elements) { return std::min(double(elements), part.parameters); };
  if (zero.stage == 0 || copies_of(scenario) == 1) return {"buckets", 0, "none"};
  double elements = at_most(zero.reduce_bucket_elements) * (zero.overlap_comm ? 2 : 1);
  if (zero.stage == 3) {
    elements += at_most(zero.prefetch_elements);
    return {"buckets", element * elements, "gradients (twice with overlap), gathered ahead"};
  }
  elements += at_most(zero.allgather_bucket_elements);
  return {"buckets", element * elements, "gradients (twice with overlap), gathered"};
}

}  // namespace

std::vector<LedgerLine> deepspeed_ledger(const Scenario& scenario) {
  const Part part = largest_part(scenario);
  std::vector<LedgerLine> ledger = {states(scenario, part), activations(scenario, part), logits(scenario, part),
                                    buckets(scenario, part)};
  ledger.push_back({"allocator", kAllocatorShare * sum_of(ledger), "reserved beside what is in use: measured"});
  ledger.push_back(
      {"CUDA and NCCL", kGB * calibration::Constants{}.outside_gb, "context, cuBLAS's and NCCL's workspaces: assumed"});
  return ledger;
}

double sum_of(const std::vector<LedgerLine>& ledger) {
  double bytes = 0;
  for (const LedgerLine& line : ledger) bytes += line.bytes;
  return bytes;
}

}  // namespace seeksim::harness
