// P, F, H, N and what else has one letter: formula_sizes.h.
#include "harness/oracles/formulas.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "harness/oracles/formula_sizes.h"
#include "runtime/comm/communicator.h"
#include "runtime/layout/gpt2_parameters.h"
#include "runtime/layout/segments.h"
#include "runtime/numbers/fp8_products.h"

namespace seeksim::harness {
namespace {

using runtime::Index;
using runtime::MemoryTag;
using runtime::OpKind;
using runtime::ParameterInfo;
using runtime::Parameters;

constexpr double kBlockBytes = kFloat * double(kernels::kBlock);

// What is gathered at one time: the module in use, what is under way for the next ones, and what is kept for backward.
// Space is used again by modules of the same size only, so each size counts by itself.
double gathered_at_most(const FormulaSizes& s) {
  std::vector<double> modules;
  double all = 0;
  for (const auto& module : gathered_modules(s)) {
    double size = 0;
    for (const ParameterInfo* p : module) size += double(p->size);
    modules.push_back(size);
    all += size;
  }
  const runtime::ZeroPlan& zero = s.plan.layout.zero;
  // Each module gathers that much more ahead, as DeepSpeed's do, so in the end it may be all that may be alive; and the
  // one in use comes on top of that.
  const bool ahead_or_kept = zero.max_reuse_distance > 0 || zero.prefetch_elements > 0;
  double bound = 0;
  for (const double size : std::set<double>(modules.begin(), modules.end())) {
    if (size <= 0) continue;
    const double alive = std::floor(double(zero.max_live_parameters) / size) + 1;
    bound += size * std::min(double(std::count(modules.begin(), modules.end(), size)), ahead_or_kept ? alive : 2);
  }
  return std::min(bound, all);
}

// Layers and residual streams that are kept for backward at one time: all that are not recomputed, and what the longest
// recomputed segment needs while it is.
struct Kept {
  double layers = 0;
  double residuals = 1;  // what comes out of the last layer
  double checkpoints = 0;
  double routed = 0, dense = 0;  // of the layers: with experts, and without
};
Kept kept_for_backward(const FormulaSizes& s) {
  Kept kept;
  double longest = 0, routed = 0, dense = 0;
  for (const runtime::Segment& segment :
       runtime::segments_of(s.plan.definition.model.layers, s.plan.layout.checkpointing)) {
    const double layers = segment.layers(), with_experts = routed_in(s, segment.first, segment.end);
    if (segment.recomputed) {
      longest = std::max(longest, layers), kept.checkpoints += 1;
      routed = std::max(routed, with_experts), dense = std::max(dense, layers - with_experts);
    } else {
      kept.layers += 1, kept.residuals += 1, kept.routed += with_experts, kept.dense += layers - with_experts;
    }
  }
  kept.layers += longest, kept.routed += routed, kept.dense += dense;
  kept.residuals += std::max(longest - 1, 0.0);
  return kept;
}

// Tokens of a micro-batch that are on a rank.
double rows_of(const FormulaSizes& s) {
  return double(s.plan.samples_at_once()) * s.plan.definition.model.context / s.plan.layout.parallel.context;
}

// Rows inside the mlps of a micro-batch: a token's, once a choice; or places for all that may arrive at this rank.
double inside_rows(const FormulaSizes& s) {
  const runtime::ModelShape shape(s.plan.definition.model);
  return s.E > 1 ? double(expert_group(s).rows_max()) : rows_of(s) * double(shape.k);
}

// One micro-batch's: what each kept layer holds (its two norms, qkv, probabilities or two statistics a row of a head,
// attention, two halves of the mlp, the stream between, four statistics a token), the stream itself, and once the
// buffers at the end and for backward.
double activation_bytes(const FormulaSizes& s) {
  const runtime::ModelPlan& m = s.plan.definition.model;
  const double R = rows_of(s), T = m.context, C = m.width, V = m.vocab;
  const double samples = double(s.plan.samples_at_once());
  const Kept kept = kept_for_backward(s);
  const runtime::ModelShape shape(m);
  const auto inside = [](Index F, Index U) { return double(F + U); };  // into and out of an mlp's activation
  const double rows = inside_rows(s), dense = inside(shape.dense.F, shape.dense.U),
               shared = inside(shape.shared.F, shape.shared.U);
  const double Q = double(shape.Q);
  const double a_norm = m.llama() ? 1 : 2;  // statistics a token
  const double E = double(shape.E), k = double(shape.k);
  const double routes =
      E > 0 ? kFloat * (R * (E + 2 * k + 1) + samples * E) : 0;  // probabilities, slots, gates, shares
  const double probabilities = R * m.heads * (m.fused_attention ? kFloat * 2 : s.C * T);
  // What arrives from a group, whose it is, and where what was sent came from.
  const double arrivals = s.E > 1 ? rows * (s.C * C + 2 * kFloat) : 0;
  // Fused attention in a context group, by heads: what comes out of the heads is kept as rows of heads too.
  const runtime::ParallelPlan& parallel = s.plan.layout.parallel;
  const double by_heads = m.fused_attention && parallel.context > 1 && !parallel.ring_attention ? s.C * R * C : 0;
  const double layer = s.C * R * (4 * C + Q) + by_heads + probabilities + kFloat * 2 * a_norm * R;
  const double routed = s.C * (rows * inside(shape.F, shape.U) + R * shared) + routes + arrivals;
  const double end =
      s.C * R * (C + V) + kFloat * ((a_norm + 1) * R + samples) + (m.logit_scale ? (s.C * V + kFloat) * R : 0);
  const double angles = m.llama() && m.layers > 0 ? kFloat * T * double(shape.D) : 0;  // of rotary positions
  // The losses of the routers; their logits and the gradients, and a row of the width for each slot.
  const double experts =
      E > 0 ? kFloat * R * (m.experts.layers(m.layers) + E + k) + s.C * (R * E + rows * C + (shared > 0 ? R * C : 0))
            : 0;
  // Rows that are packed, and those of the slots; experts and gates of what is packed, gates that arrive and return.
  const double group = s.E > 1 ? s.C * C * (rows + R * k) + 4 * kFloat * rows : 0;
  const double mlps = m.layers > 0 ? R * Q + widest_mlp(s, R, rows) : 0;
  const double backward = s.C * (R * 3 * C + mlps) + angles + experts + group;
  const auto is_vector = [](const ParameterInfo* p) { return p->shape.size() == 1; };
  const auto& frozen = s.parameters.frozen();
  const bool unused = std::any_of(frozen.begin(), frozen.end(), is_vector);  // the gradient of a frozen bias
  const double casts =                                                       // operands of one product
      s.plan.definition.fp8.on() ? kFloat * double(runtime::fp8_work_elements(s.plan, s.parameters, Index(R))) : 0;
  return kept.layers * layer + kept.routed * routed + kept.dense * s.C * R * dense + kept.residuals * s.C * R * C +
         end + backward + rows_by_heads(s) + casts + (unused ? kFloat * C : 0);
}

double checkpoint_bytes(const FormulaSizes& s) {
  const double count = kept_for_backward(s).checkpoints;
  return (s.plan.layout.checkpointing.on_host ? std::min(count, 2.0) : count) * s.C * rows_of(s) *
         s.plan.definition.model.width;
}

// Subtree roots that a rank sends in a step.
double roots(const FormulaSizes& s, int rank) {
  const runtime::StepCut cut = s.cut(rank);
  double count = 0;
  for (int k = 0; k < cut.count(); ++k) {
    const runtime::SampleRange samples = cut.samples(k, s.groups.place_of(rank));
    count += double(kernels::cover(samples.begin, samples.end, cut.leaves).size());
  }
  return count;
}

template <class Of>
double most(const FormulaSizes& s, Of of_rank) {
  double largest = 0;
  for (int rank = 0; rank < s.groups.ranks; ++rank) largest = std::max(largest, double(of_rank(rank)));
  return largest;
}

struct Budget {
  const FormulaSizes& s;
  std::vector<BudgetLine> lines = {};
  BudgetLine& line(const std::string& name, double bytes, double blocks, const char* formula) {
    lines.push_back({name, bytes, blocks * kBlockBytes, false, formula});
    return lines.back();
  }
  BudgetLine& tag(MemoryTag of, double bytes, double blocks, const char* formula) {
    return line(std::string(name(of)), bytes, blocks, formula);
  }
  BudgetLine& host(MemoryTag of, double bytes, double blocks, const char* formula) {
    return line("host " + std::string(name(of)), bytes, blocks, formula);
  }
};

// Copies of other ranks' shards: parameters (in fp32 the masters themselves), masters, moments, gradients.
double copied_bytes(const FormulaSizes& s) {
  const double weights = s.C < kFloat ? s.C + s.O - s.M : kFloat;
  return s.uneven ? s.copies() * (weights + s.G + s.M) * s.own : s.copies() * (weights + s.G + s.M) * s.P / s.N;
}

void gradients_and_optimizer(Budget& budget) {
  const FormulaSizes& s = budget.s;
  if (s.stage >= 2)
    budget.tag(MemoryTag::gradients, s.uneven ? s.G * s.own : s.G * s.P / s.N, 1, "GP/N");
  else if (s.G < kFloat)  // fp32 sums, the head's share and the loss are partial sums then
    budget.tag(MemoryTag::gradients, s.here * s.G * s.P, 0, "GP");
  else
    budget.tag(MemoryTag::gradients, s.here * kFloat * (s.P + s.H + 1), 0, "4(P + tied head's use + loss)");
  if (s.stage >= 1)
    budget.tag(MemoryTag::optimizer, s.uneven ? s.O * s.own : s.O * s.P / s.N,
               s.plan.definition.optimizer.ema_decay > 0 ? 4 : 3, "OP/N");
  else
    budget.tag(MemoryTag::optimizer, (s.here * s.O + kFloat * s.outer) * s.P, 0,
               s.outer > 0 ? "OP a worker, and outer" : "OP");
}

// The same on the host. In fp32 too there are masters: they define the shard, and the device has a copy.
void offloaded_optimizer(Budget& budget) {
  const FormulaSizes& s = budget.s;
  const double share = s.own;
  const runtime::OffloadPlan& offload = s.plan.layout.offload;
  const bool wide = s.C == kFloat, in_files = offload.optimizer.home == runtime::Home::nvme;
  const bool parameters = offload.parameters.home != runtime::Home::device;
  // Bytes of parameters in memory besides the values that define them.
  const bool defined_apart = in_files || (!wide && s.plan.definition.precision.master_weights);
  const bool swapped = offload.parameters.home == runtime::Home::nvme && defined_apart;
  const double stays = swapped ? std::min(share, double(offload.parameters.max_in_cpu)) : share;
  const double trained = in_files ? (parameters ? s.C : 0) : wide ? 0 : s.C;
  const double frozen = parameters ? s.C * s.F / s.N : 0;
  budget.tag(MemoryTag::gradients, 0, 0, "0: on the host");
  budget.tag(MemoryTag::optimizer, 0, 0, "0: on the host");
  budget.host(MemoryTag::gradients, s.G * share, 1, "GP/N");
  budget.host(MemoryTag::optimizer, in_files ? 0 : (s.O + (wide ? kFloat : 0)) * share, 4,
              "OP/N, in fp32 with masters; nvme: 0");
  budget.host(
      MemoryTag::parameters, trained * stays + frozen, 2,
      "CP/N in 16 bits, on their way to the device; those offloaded, C(P + F)/N; in a file, what stays of them");
  if (offload.optimizer.speculates)
    budget.host(MemoryTag::staging, (s.O + (wide ? kFloat : s.C)) * share, 5,
                "(O + C)P/N, in fp32 with masters: what a step makes before it is known to hold");
  const double copied = in_files ? s.copies() * s.G * share : copied_bytes(s);
  budget
      .host(MemoryTag::peer_copies, copied + s.copies() * frozen, 6 * std::max(s.copies(), 1.0),
            "(C + G + O)P/N a copy that is kept; nvme: GP/N")
      .at_most = s.uneven;
}

// Bytes that a rank sends to others in the gathers of one micro-batch; in an evaluation it goes forward only.
double gathers_of(const FormulaSizes& s, int rank, bool evaluates) {
  double own = 0;
  const auto modules = gathered_modules(s);
  for (const runtime::ModuleUse& use :
       runtime::module_uses(s.plan.definition.model.layers, s.plan.layout.checkpointing)) {
    if (evaluates && use.phase != runtime::Phase::forward) continue;
    const bool inside = s.keeps() && use.phase != runtime::Phase::forward;
    for (const ParameterInfo* p : modules[std::size_t(use.module)])
      own += s.share_in(inside ? s.keeping : s.groups, rank, double(p->offset), double(p->size)) *
             (inside ? s.keeping.size - 1 : s.N - 1) * s.gathered_bytes(*p) / double(p->size);
  }
  return own;
}

}  // namespace

std::vector<BudgetLine> memory_budget(const Scenario& scenario) {
  const FormulaSizes s(scenario);
  const double N = s.N;
  Budget budget{s};
  const double secondary = s.most_secondary(false);
  const double both = s.C * s.F / N + s.most_secondary(true);
  const double blocks = (s.F > 0 ? 2 : 1) * (s.keeps() ? 2 : 1);
  if (s.plan.layout.offload.parameters.home != runtime::Home::device)
    budget.tag(MemoryTag::parameters, s.C * persistent_elements(s) + secondary, s.keeps() ? blocks : 0,
               s.keeps() ? "those that stay gathered, and a secondary shard" : "those that stay gathered");
  else if (s.stage >= 3)
    budget.tag(MemoryTag::parameters, s.C * persistent_elements(s) + both, blocks,
               s.keeps() ? "C(P + F)/N, those that stay gathered, and a secondary shard"
                         : "C(P + F)/N and those that stay gathered");
  else
    budget.tag(MemoryTag::parameters, s.here * s.C * (s.P + s.F), 0, "C(P + F)");
  const bool offloaded = s.plan.layout.offload.optimizer.home != runtime::Home::device;
  if (offloaded)
    offloaded_optimizer(budget);
  else
    gradients_and_optimizer(budget);
  const bool frozen_here = s.stage >= 3 && s.plan.layout.offload.parameters.home == runtime::Home::device;
  const double frozen = frozen_here ? s.copies() * s.C * s.F / N : 0;
  budget
      .tag(MemoryTag::peer_copies, (offloaded ? 0 : copied_bytes(s)) + frozen, 6 * s.copies(),
           "(C + G + O)P/N (and CF/N at stage 3) a copy that is kept; offloaded: CF/N")
      .at_most = s.uneven;
  const double gathered = s.stage >= 3 ? s.C * gathered_at_most(s) + wire_bytes(s) : 0;
  budget.tag(MemoryTag::gathered, gathered, 0, "modules in use and ahead").at_most = true;
  budget.tag(
      MemoryTag::activations, activation_bytes(s), 0,
      "R(C(15c + hT) + 16) a layer that is kept or (of the longest segment) recomputed, CRc a residual stream, and "
      "once what stands at the end");
  budget.tag(MemoryTag::checkpoints, checkpoint_bytes(s), 0,
             "CRc a recomputed segment, or of two if they go to the host");
  if (s.plan.layout.checkpointing.on_host) {
    const double bytes = kept_for_backward(s).checkpoints * s.C * rows_of(s) * s.plan.definition.model.width;
    budget.host(MemoryTag::checkpoints, bytes, 0, "CRc a recomputed segment");
  }
  return budget.lines;
}

namespace {

std::vector<BudgetLine> zero_traffic(const FormulaSizes& s, std::int64_t steps, std::int64_t applied) {
  const double others = s.N - 1, share = (s.N - 1) / double(s.N), all = s.P + s.H + 1;
  const double roots_max = most(s, [&](int rank) { return roots(s, rank); });
  std::vector<BudgetLine> lines = group_traffic(s, steps);
  const auto kind = [&](const char* of, double elements, double blocks, const char* formula, double bytes = kFloat) {
    lines.push_back({of, bytes * elements, kBlockBytes * blocks, false, formula});
  };
  if (s.stage == 0) {
    kind("all_reduce", double(steps) * (roots_max + 1) * all * share,
         double(steps) * (roots_max + 1) * s.N * s.all_reduces(), "(roots + 1)(P + H)(N-1)/N a step");
    // Travelling message by message, half of it is a gather, as others are.
    lines.back().at_most = s.E > 1 || s.plan.layout.parallel.context > 1;
    return lines;
  }
  const double reduced =
      most(s, [&](int rank) { return roots(s, rank) * (s.P - s.share(rank, 0, s.P) + s.H - s.share(rank, 0, s.H)); });
  if (s.plan.definition.quantised_gradients.on())
    lines.push_back(quantised_traffic(s, steps));
  else
    kind("reduce_scatter", double(steps) * reduced, double(steps) * roots_max * 2,
         "roots x (P(N-1)/N + what it does not own of H) a step");
  if (const int groups = s.groups.groups(); groups > 1) {
    const double own = most(s, [&](int rank) { return s.share(rank, 0, s.P) + s.share(rank, 0, s.H) + 1; });
    const runtime::Definition& d = s.plan.definition;
    const runtime::TreeOwnership tree{.leaves = d.global_batch, .members = groups, .grain = d.model.experts.samples};
    std::size_t sums = 0;
    for (int group = 0; group < groups; ++group) sums = std::max(sums, tree.nodes(group).size());
    kind("all_reduce", double(steps) * double(sums + 1) * own * (groups - 1) / groups,
         double(steps) * double(sums + 1) * (groups + 2),
         "(roots + 1)(P + H)/N over the others of G groups, (G-1)/G of it a step");
  }
  if (s.copies() > 0)
    kind("peer_copy", double(steps) * s.copies() * (s.uneven ? s.own : s.P / s.N), double(steps) * s.copies(),
         "P/N a copy and step", s.G);
  if (s.stage < 3) {
    kind("publish", double(applied) * (s.uneven ? s.own * others : s.P * share), double(applied) * others,
         "P(N-1)/N a step", s.C);
  } else {
    const auto kept = [&](bool frozen) {
      return most(s, [&](int rank) {
        double own = 0;
        for (const ParameterInfo& p : s.parameters.all()) {
          if (s.persists(p) && p.frozen == frozen)
            own += s.share(rank, double(p.offset), double(p.size)) * s.gathered_bytes(p) / double(p.size);
        }
        return own;
      });
    };
    const double trained = kept(false), frozen = kept(true), times = double(applied + 1);
    kind("publish", (times * trained + frozen) * others, (times * (trained > 0) + (frozen > 0)) * others,
         "what stays gathered, (N-1)/N of it a step and once before (frozen: once)", 1);
    const double runs = s.plan.recovery.rerun_and_compare ? 2 : 1;  // of each micro-batch
    const double trained_on = double(steps) * s.cut().count() * runs, evaluated = evaluated_passes(s, steps);
    const double passes = trained_on + evaluated;
    const double shares = (s.P > 0) + (s.F > 0);  // of a rank, each cut at blocks
    const double gathered = most(
        s, [&](int rank) { return trained_on * gathers_of(s, rank, false) + evaluated * gathers_of(s, rank, true); });
    kind("param_gather", gathered, passes * 3 * others * shares * (s.parameters.tied() ? 2 : 1),
         s.keeps() ? "P(N-1)/N a micro-step forward, and backward and recomputation over the ranks of a group"
                   : "2P(N-1)/N a micro-step (a tied head gathers wte twice; a recomputed segment all its layers but "
                     "one again), twice where it is run again",
         1);
    lines.back().at_most = s.plan.layout.zero.max_reuse_distance > 0;
  }
  return lines;
}

}  // namespace

std::vector<BudgetLine> traffic_budget(const Scenario& scenario, std::int64_t steps, std::int64_t applied) {
  const FormulaSizes s(scenario);
  std::vector<BudgetLine> lines = zero_traffic(s, steps, applied);
  if (s.plan.definition.fp8.keeps_state() && s.stage == 0 && s.plan.layout.parallel.alone())  // what is gathered counts
    lines.front().bytes += double(steps) * kFloat * runtime::fp8_tensors(s.plan.definition.model.layers) * (s.N - 1);
  add_lines(lines, context_traffic(s, steps));
  return lines;
}

namespace {

std::vector<BudgetLine> zero_calls(const FormulaSizes& s, int micro_batches, std::int64_t steps) {
  const double ranks = double(s.groups.ranks) * s.E * s.plan.layout.parallel.context;
  const double each = double(steps) * ranks, micro_steps = s.cut().count();
  const double evaluations = double(s.plan.definition.evaluation.count(steps)) * ranks;
  const double buckets = buckets_at_most(s) + s.runs() - 1;  // a bucket ends where a run does
  std::vector<BudgetLine> lines = group_calls(s, steps, micro_batches, buckets);
  const auto kind = [&](const char* of, double calls, const char* formula) {
    lines.push_back({of, calls, 0, true, formula});
  };
  if (s.stage == 0) {
    kind("all_reduce", each * s.all_reduces() + evaluations,
         "one a rank and step (and a run of experts or of others, or a bucket of DDP), and one a rank and evaluation");
    return lines;
  }
  kind("reduce_scatter", each * (s.stage >= 2 ? micro_steps : 1) * buckets * quantised_ways(s),
       "one a rank, (stages 2 and 3) micro-step and bucket (two where sums of groups are quantised), and two buckets "
       "side by side hold more than one may");
  const double sums = s.groups.groups() > 1 ? 2 * each : 0;
  if (sums + evaluations > 0)
    kind("all_reduce", sums + evaluations,
         "of shard groups two a rank and step: its shard, and what is beside it; and one a rank and evaluation");
  if (s.stage < 3) return lines;
  const double uses = double(runtime::module_uses(s.plan.definition.model.layers, s.plan.layout.checkpointing).size());
  const double runs = s.plan.recovery.rerun_and_compare ? 2 : 1;  // of each micro-batch
  const double forward = double(s.parameters.modules()) * ranks;
  kind("param_gather", each * micro_steps * uses * runs + evaluated_passes(s, steps) * forward,
       "one a rank, micro-step and use of a module; of an evaluation forward only");
  return lines;
}

}  // namespace

std::vector<BudgetLine> calls_budget(const Scenario& scenario, std::int64_t steps) {
  const FormulaSizes s(scenario);
  std::vector<BudgetLine> lines = zero_calls(s, micro_batches_of_replica(scenario), steps);
  add_lines(lines, context_calls(s, steps));
  return lines;
}

const char* what_is(MemoryTag tag) {
  switch (tag) {
    case MemoryTag::parameters:
      return "parameters to compute with: all, or (stage 3) this rank's shard and what stays gathered";
    case MemoryTag::gradients:
      return "reduced gradients: all with the tied head's share and the loss, or (stages 2 and 3) this rank's shard";
    case MemoryTag::optimizer:
      return "the optimizer's moments (AdamW and Muon two, Lion one, SGD one or none), the mean of weights (ema), and "
             "fp32 masters beside 16-bit parameters: of all, or (stages 1 to 3) of this rank's shard";
    case MemoryTag::activations:
      return "what forward keeps for backward, of one micro-batch";
    case MemoryTag::partial_sums:
      return "nodes of the canonical gradient tree that wait for their siblings";
    case MemoryTag::communication:
      return "gradient buckets, and the slots in which other ranks' subtree roots arrive; compressed gradients and "
             "residuals";
    case MemoryTag::data:
      return "tokens and targets of one micro-batch";
    case MemoryTag::scratch:
      return "norms, counts and what one operation needs while it runs";
    case MemoryTag::gathered:
      return "parameters of others while their module is used, and those gathered ahead (stage 3)";
    case MemoryTag::peer_copies:
      return "copies of other ranks' shards of everything, for recovery (stages 1 to 3)";
    case MemoryTag::checkpoints:
      return "inputs of the layers whose activations are computed again in backward";
    case MemoryTag::staging:
      return "buffers through which offloaded state passes on its way";
    case MemoryTag::count_:
      break;
  }
  return "";
}

}  // namespace seeksim::harness
