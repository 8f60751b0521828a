#include "harness/loading/estimate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "harness/scenario/classes.h"
#include "harness/scenario/variants.h"
#include "runtime/layout/parameters.h"
#include "runtime/layout/segments.h"
#include "runtime/plan/optimizer_kinds.h"

namespace seeksim::harness {

namespace {
// By hand, here and below: a model that is far too large, or wrong in other ways, shall be refused, not listed
// parameter by parameter. Columns of q, k and v, and those into and out of the mlp's activation.
double qkv_of(const runtime::ModelPlan& m) { return m.width * (m.llama() ? 1 + 2.0 * m.key_heads() / m.heads : 3.0); }
double mlp_of(const runtime::ModelPlan& m) { return (m.llama() ? 3.0 : 2.0) * m.hidden(); }
double dense_mlp_of(const runtime::ModelPlan& m) { return (m.llama() ? 3.0 : 2.0) * m.dense_hidden(); }
// Of the mean layer, of which some have experts and others one mlp.
double mean_of(const runtime::ModelPlan& m, double routed, double dense) {
  const double share = m.experts.on() ? m.experts.layers(m.layers) / double(std::max(m.layers, 1)) : 0;
  return share * routed + (1 - share) * dense;
}
// Columns of all experts' weights and of their router.
double weights_of_experts(const runtime::ModelPlan& m) { return m.experts.count * (mlp_of(m) + 1); }
double weights_of_mlp(const runtime::ModelPlan& m) {
  return mean_of(m, weights_of_experts(m) + m.experts.shared * mlp_of(m), dense_mlp_of(m));
}
// Of those that a token goes through, with what routing leaves.
double kept_of_experts(const runtime::ModelPlan& m) {
  return m.experts.per_token * (mlp_of(m) + m.width + 4) + 3.0 * m.experts.count;
}
// Where experts are divided: places for rows of a token that each rank of a group keeps for all of them, as a multiple
// of its experts (runtime/comm/expert_group.h), and what a place holds beside the mlp's rows.
double places_of(const runtime::ModelPlan& m, int group) {
  const double own = double(m.experts.count) / group,
               capacity = double(m.experts.capacity(std::int64_t(m.context) * m.experts.samples)) / m.context;
  const double all = std::min<double>(m.experts.per_token, own);
  return group * (capacity > 0 ? std::min(all, capacity * own) : all);
}
double kept_of_group(const runtime::ModelPlan& m, int group) {
  const double rows = group == 1 ? kept_of_experts(m)
                                 : places_of(m, group) * (mlp_of(m) + 3 * m.width + 8) + m.experts.per_token * m.width +
                                       3.0 * m.experts.count;
  return mean_of(m, rows + m.experts.shared * mlp_of(m), dense_mlp_of(m));
}

double parameters_of(const runtime::ModelPlan& m) {
  const double v = m.vocab, t = m.context, c = m.width, l = m.layers;
  const double ends = v * c + (m.tied ? 0 : v * c) + (m.logit_scale ? 1 : 0);
  if (!m.llama()) return ends + t * c + l * (12 * c * c + 13 * c) + 2 * c;
  return ends + l * (c * (qkv_of(m) + c + weights_of_mlp(m)) + 2 * c) + c;
}

// Measured on worlds of 8 to 4,096 ranks, by classes to 131,072, and models of 2 to 96 layers, rounded up.
constexpr double kShapesOfRank = 192 << 10;
constexpr double kShapesOfLayer = 20 << 10;
constexpr double kTensorsOfLayer = 13;
constexpr double kShapesOfMember = 32;      // as each other one lists it
constexpr double kShapesOfPiece = 288;      // that goes to a rank or comes from one, in a scatter and in a gather
constexpr double kShapesOfWorld = 1 << 10;  // of each rank, simulated or not: its ballot, its record

double trained_of(const runtime::Definition& d) {
  return double(runtime::Parameters(d.model, d.optimizer.decay_all).trainable_size());
}

// Bytes of the whole world: a snapshot of weights and moments in fp32, and all kept checkpoints on disks that are
// memory. The new checkpoint is there before the oldest goes.
double checkpoints_of(const Scenario& scenario, double parameters) {
  const runtime::CheckpointPlan& plan = scenario.train.checkpoint;
  if (!plan.on()) return 0;
  const double steps = double(scenario.train.definition.steps);
  const double made = plan.every_steps > 0 ? std::ceil(steps / double(plan.every_steps)) : 1;
  const double kept = scenario.real_storage ? 0 : std::min(made, double(plan.keep) + 1);
  const runtime::CompressionPlan& compression = scenario.train.definition.compression;
  const runtime::LocalSgdPlan& local = scenario.train.definition.local_sgd;
  // Of a parameter, with residuals or late gradients; with the outer step's, and all workers'.
  const runtime::StalenessPlan& late = scenario.train.definition.staleness;
  const double parts = compression.on() ? compression.groups + (compression.of_momentum() ? 1.0 : 0.0)
                       : late.on()      ? late.workers * (late.bound + 1.0)
                                        : 0;
  const double values = local.on() ? 2 + 3 * local.workers : 3 + parts;
  return (kept + (plan.async ? 1 : 0)) * values * sizeof(float) * parameters;
}

// A rank has a node, two residuals and the wire for each of its groups, and the part that it sums of all groups.
double compression_of(const runtime::Definition& d, double trained, double ranks) {
  if (!d.compression.on()) return 0;
  const double groups = d.compression.groups, here = std::ceil(groups / ranks);
  const double of_sums = d.compression.of_momentum() ? 3 / ranks : 0;
  return sizeof(float) * trained * (4 * here + 2 * groups / ranks + of_sums);
}

// A rank has all places of each of its workers, and their nodes.
double late_of(const runtime::Definition& d, double trained, double ranks) {
  if (!d.staleness.on()) return 0;
  return sizeof(float) * trained * (d.staleness.bound + 2) * std::ceil(d.staleness.workers / ranks);
}

// A rank serves several workers: of the others weights, gradient, moments and node; and the outer step's four.
double local_sgd_of(const runtime::Definition& d, double trained, double values, double ranks) {
  if (!d.local_sgd.on()) return 0;
  const double here = std::ceil(d.local_sgd.workers / ranks);
  return trained * (values + sizeof(float)) * (here - 1) + 4 * sizeof(float) * trained;
}

}  // namespace

namespace {

Estimate estimate_of(const Scenario& scenario, double simulated) {
  const runtime::Definition& d = scenario.train.definition;
  const double v = d.model.vocab, t = d.model.context, c = d.model.width, l = d.model.layers, h = d.model.heads;
  const double micro = scenario.train.samples_at_once(), ranks = scenario.world.ranks();
  Estimate estimate;
  estimate.parameters = parameters_of(d.model);
  if (is_of_shapes(scenario)) {
    // What a rank keeps to itself grows with its launches and messages under way, not with what they are about.
    // An owner exchanges a piece with every rank, every rank with each owner; a rank owns a block at least, or nothing.
    const double blocks = estimate.parameters / double(kernels::kBlock) + kTensorsOfLayer * l;
    const double owners = scenario.train.layout.zero.stage > 0 ? std::min(ranks, blocks) : 0;
    const double own = owners == 0 ? 0 : simulated < ranks ? ranks : owners;  // a stand-in is an owner, most often
    estimate.bytes_per_rank =
        kShapesOfRank + kShapesOfLayer * l + kShapesOfMember * ranks + kShapesOfPiece * (own + owners);
    estimate.bytes = estimate.bytes_per_rank * simulated + kShapesOfWorld * ranks;
    return estimate;
  }
  const double trained = d.model.frozen.empty() ? estimate.parameters : trained_of(d);
  const double compute = double(runtime::size_of(d.precision.compute)),
               gradient = double(runtime::size_of(d.precision.gradients));
  const double moments = 4 * runtime::states_of(d.optimizer);
  const double masters = compute < 4 && d.precision.master_weights ? 4 : 0, sums = gradient < 4 ? 4 : 0;
  // Weights, gradient, moments, and the subtree roots of the samples: at most two a level of the rank's share of
  // the batch, sent and received once each. Frozen parameters are weights only.
  const double levels = std::log2(std::max(2.0, double(d.global_batch) / ranks)) + 2;
  // Stages and tensor ways share the parameters; a pipeline holds the activations of several micro-batches, each of a
  // stage's layers only.
  const runtime::ParallelPlan& parallel = scenario.train.layout.parallel;
  const double routed = d.model.experts.layers(d.model.layers);  // their experts, as a share of the parameters:
  const double experts = routed * c * weights_of_experts(d.model) / estimate.parameters;
  const double share = (1 - experts + experts / parallel.expert) / double(parallel.pipeline * parallel.tensor);
  const double state =
      share * (compute * estimate.parameters + trained * (gradient + sums + moments + masters + 4 * 2 * levels)) +
      compression_of(d, trained, ranks) + late_of(d, trained, ranks) +
      local_sgd_of(d, trained, compute + gradient + sums + moments + masters, ranks);
  // Activations kept for the backward pass: some 9 values of the width, qkv, what goes into and comes out of the mlp's
  // activation and the attention's probabilities, a layer; logits and their gradient once.
  const double layer = 9 * c + qkv_of(d.model) + kept_of_group(d.model, parallel.expert);
  double kept = 0, longest = 0;
  for (const runtime::Segment& segment : runtime::segments_of(d.model.layers, scenario.train.layout.checkpointing)) {
    if (segment.recomputed) longest = std::max(longest, double(segment.layers()));
    kept += segment.recomputed ? 0 : 1;
  }
  const double activations =
      compute * micro / parallel.context *
      (l * t * c + (kept + longest) * (t * layer + (d.model.fused_attention ? 0 : 2 * h * t * t)) +
       (d.model.logit_scale ? 3 : 2) * t * v + 4 * t * c);
  constexpr double kRank = 24 << 10;  // a fiber, its queues and its recorder
  estimate.bytes_per_rank = state + activations + kRank;
  estimate.bytes = estimate.bytes_per_rank * (ranks + 1) + double(d.data.bytes.size()) * 2 +
                   checkpoints_of(scenario, estimate.parameters);
  return estimate;
}

}  // namespace

Estimate estimate(const Scenario& scenario) { return estimate_of(scenario, simulated_ranks(scenario)); }
Estimate estimate_rank_by_rank(const Scenario& scenario) { return estimate_of(scenario, scenario.world.ranks()); }

std::string count_text(double n) {
  if (n >= 1e9) return fmt::format("{:.4g} G", n / 1e9);
  if (n >= 1e6) return fmt::format("{:.4g} M", n / 1e6);
  if (n >= 1e4) return fmt::format("{:.4g} k", n / 1e3);
  return fmt::format("{:.0f}", n);
}

std::string bytes_text(double bytes) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  int unit = 0;
  for (; bytes >= 1024 && unit < 6; ++unit) bytes /= 1024;
  return fmt::format("{:.4g} {}", bytes, kUnits[unit]);
}

}  // namespace seeksim::harness
