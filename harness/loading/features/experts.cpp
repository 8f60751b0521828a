#include "harness/loading/features/experts.h"

#include <fmt/format.h>

#include "harness/loading/features/refusals.h"
#include "kernels/view.h"

namespace seeksim::harness {

void settle_experts(const Reader& model, runtime::ModelPlan& of) {
  runtime::ExpertsPlan& plan = of.experts;
  if (!plan.on()) {
    plan.slabs = false;
    plan.samples = 1;
    for (const char* key :
         {"experts_per_token", "capacity_factor", "normalize_gates", "aux_loss", "z_loss", "gate", "gate_scale",
          "shared_experts", "dense_layers", "dense_ffn", "expert_sums", "routing_samples"}) {
      if (model.find(key) != nullptr)
        model.problem(key, "there are no experts", "Remove it, or set \"experts\" and \"family\": \"llama\".");
    }
    return;
  }
  plan.normalized = model.flag("normalize_gates", plan.per_token > 1);
  if (plan.dense_layers > 0 && plan.dense_layers >= of.layers) {
    model.problem("dense_layers", fmt::format("of {} layers none would have experts", of.layers),
                  of.layers > 1 ? fmt::format("Use at most {}.", of.layers - 1) : "Use 0, or more layers.");
    plan.dense_layers = 0;
  }
  if (plan.dense_layers == 0 && model.find("dense_ffn") != nullptr)
    model.problem("dense_ffn", "every layer has experts, as wide as ffn", "Remove it, or set dense_layers.");
  if (plan.per_token > plan.count)
    model.problem("experts_per_token", fmt::format("a token cannot go to {} of {} experts", plan.per_token, plan.count),
                  "Use at most as many as \"experts\".");
  if (plan.normalized && plan.per_token == 1)
    model.problem("normalize_gates",
                  "a token's only gate, divided by itself, is 1 whatever the router says, and so its gradient is 0",
                  "Use false, or two or more experts a token.");
}

void check_expert_sums(const Reader& model, const runtime::ModelPlan& plan) {
  if (plan.experts.slabs && plan.llama() && plan.hidden() % kernels::kSlabs != 0)
    model.problem("expert_sums",
                  fmt::format("8 slabs of an expert need a width that is a multiple of 8, not {}", plan.hidden()),
                  "Change \"ffn\", or use \"experts\".");
}

namespace {

// What is not whole groups of so many samples.
struct Counted {
  bool asked;
  const char* path;
  int samples;
  const char* what;
};

}  // namespace

void settle_routing(const Reader& top, Scenario& scenario) {
  const runtime::TrainPlan& train = scenario.train;
  runtime::Definition& d = scenario.train.definition;
  const int counted = runtime::samples_of_routing(d.quirks, d.model.experts.samples, train.layout.micro_batch);
  d.model.experts.samples = 1;
  if (!d.model.experts.on() || counted <= 1) return;
  const Counted all[] = {
      {true, "/deepspeed/train_batch_size", d.global_batch, "a step has"},
      {true, "/deepspeed/train_micro_batch_size_per_gpu", train.layout.micro_batch, "a micro-batch has"},
      {d.evaluation.on(), "/evaluation/samples", d.evaluation.samples, "an evaluation has"},
      {d.evaluation.on(), "/evaluation/micro_batch", train.evaluated_at_once(), "an evaluation's micro-batch has"}};
  bool fits = true;
  for (const Counted& one : all) {
    if (!one.asked || one.samples % counted == 0) continue;
    fits = false;
    top.findings().add(
        one.path,
        fmt::format("the routing is counted over {} samples together, and {} {}", counted, one.what, one.samples),
        fmt::format("Use a multiple of {}{}.", counted, d.quirks.any() ? "" : ", or change routing_samples"));
  }
  if (d.compression.on() || d.local_sgd.on() || d.staleness.on()) {
    fits = false;
    top.findings().add(d.quirks.any() ? "/quirks" : "/model/routing_samples",
                       "not supported: a routing that is counted over several samples, with compressed gradients, "
                       "local SGD or late gradients",
                       "Leave one of the two out.");
  }
  if (fits) d.model.experts.samples = counted;
}

void settle_counting(const Reader& top, Scenario& scenario) {
  const Alarms& alarms = scenario.watched.alarms;
  const runtime::ExpertsPlan& experts = scenario.train.definition.model.experts;
  refuse(top,
         {{alarms.expert_share_max && !experts.on(), "/alarms/expert_share_max", "there are no experts",
           "Remove it, or set \"experts\" in model."},
          {alarms.dropped_share_max && experts.capacity_factor == 0, "/alarms/dropped_share_max",
           "experts take all choices, so that none can be dropped", "Set capacity_factor in model, or remove it."}});
  scenario.train.counts_choices = experts.on() && alarms.of_experts();
}

void check_experts(const Reader& top, const Scenario& scenario) {
  const runtime::TrainPlan& train = scenario.train;
  const bool divided = train.layout.parallel.expert > 1;
  if (!train.definition.model.experts.on()) {
    if (divided)
      top.findings().add("/world/expert", "there are no experts to divide", "Remove it, or set \"experts\" in model.");
    return;
  }
  const runtime::ParallelPlan& parallel = train.layout.parallel;
  const runtime::ExpertsPlan& experts = train.definition.model.experts;
  const bool of_both_kinds = experts.shared > 0 || experts.dense_layers > 0;
  const bool in_two_parts = parallel.defers();
  const runtime::Quirks others = train.definition.quirks.without(runtime::Quirk::experts_by_micro_batch);
  refuse(top, {
                  {parallel.tensor > 1 && !experts.slabs, "/world/tensor",
                   "an expert's sums go over its whole width, and tensor-parallel ranks have slabs of it",
                   "Add \"expert_sums\": \"slabs\" to model: then 1, 2, 4 and 8 ranks have the same bits."},
                  {in_two_parts && parallel.tensor > 1, "/world/schedule",
                   "not supported: slabs of experts whose backward pass is in two parts",
                   "Use another schedule than zero_bubble."},
                  {in_two_parts && of_both_kinds, "/world/schedule",
                   "not supported: shared experts and dense layers whose backward pass is in two parts",
                   "Use another schedule than zero_bubble."},
                  {others.any(), "/quirks", "not supported: experts with quirks other than experts_by_micro_batch",
                   "Leave one of the two out."},
                  {train.numerics == runtime::Numerics::fast, "/numerics",
                   "not supported: experts in a run of fast arithmetic", "Use \"exact\" or \"shapes\"."},
              });
}

}  // namespace seeksim::harness
