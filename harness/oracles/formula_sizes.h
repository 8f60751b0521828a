// What the formulas of memory and traffic are made of.
// P: trained parameters; F: frozen ones; H: elements of a tied head's use (0 otherwise), whose gradient travels apart;
// N: ranks among whom ZeRO cuts: of the data axis, or of a shard group.
// Where experts are divided among E ranks, P and F are what one of them has: its experts, and all else; N are the D / E
// ranks with the same experts. X: trained elements of its experts.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "harness/scenario/variants.h"
#include "runtime/comm/expert_group.h"
#include "runtime/layout/gradient_split.h"
#include "runtime/layout/parameters.h"
#include "runtime/layout/placement_rule.h"
#include "runtime/layout/shard_groups.h"
#include "runtime/plan/optimizer_kinds.h"
#include "runtime/zero/code_wire.h"

namespace seeksim::harness {

inline constexpr double kFloat = sizeof(float);

// One line of a budget, in bytes of the rank that needs most.
struct BudgetLine {
  std::string name;      // of memory: the tag, or "host <tag>"; of traffic: the kind of operation
  double bytes = 0;      // as the formula has it
  double slack = 0;      // for bounds on 1024-element blocks
  bool at_most = false;  // an upper bound only
  std::string formula;   // "4P/N"
};

struct FormulaSizes {
  explicit FormulaSizes(const Scenario& scenario)
      : plan(scenario.train),
        parameters(plan.definition.model, plan.definition.optimizer,
                   runtime::model_part(plan.definition.model, plan.layout.parallel, 0, 0)),
        P(double(parameters.trainable_size())),
        F(double(parameters.size()) - P),
        H(parameters.shares_head() ? double(parameters.wte().size) : 0),
        E(plan.layout.parallel.expert),
        split(parameters),
        X(double(split.size(true))),
        groups(shard_groups_of(scenario)),
        keeping(runtime::secondary_groups(scenario.train.layout, groups.ranks)),
        N(groups.size),
        kept(peer_copies_at_most(scenario)),
        stage(plan.layout.zero.stage),
        C(double(runtime::size_of(plan.definition.precision.compute))),
        G(double(runtime::size_of(plan.definition.precision.gradients))),
        M(kFloat * runtime::states_of(plan.definition.optimizer)),
        O(M + (C < kFloat && plan.definition.precision.master_weights ? kFloat : 0)),
        uneven(runtime::kind_of(plan.definition.optimizer).takes_matrices || plan.layout.zero.rule != nullptr) {
    parameters.place_by(plan.layout.zero.rule);
    own = largest_of(groups);
    const runtime::LocalSgdPlan& local = plan.definition.local_sgd;
    if (!local.on()) return;
    here = std::ceil(double(local.workers) / groups.ranks);
    outer = local.outer.keeps_momentum() ? 2 : 1;
  }

  // Elements of [offset, offset + size) in the share of a rank: an even one, unless shards end between matrices.
  double share(int rank, double offset, double size) const { return share_in(groups, rank, offset, size); }
  double share_in(const runtime::ShardGroups& of, int rank, double offset, double size) const {
    const auto bound = [&](double k) { return offset < P ? trained_bound(k, of.size) : P + k * F / of.size; };
    const int place = of.place_of(rank);  // frozen parameters are cut apart
    return std::max(0.0, std::min(offset + size, bound(place + 1)) - std::max(offset, bound(place)));
  }
  // Where shard k begins: at kP/ranks, or the nearer end of the matrix that this is in, the first of two.
  double trained_bound(double k, double ranks) const {
    const double even = begin_of(k, ranks);
    for (const runtime::ParameterInfo* p : parameters.trainable()) {
      const double begin = double(p->offset), size = double(p->experts > 0 ? p->of_expert : p->size);
      if (!p->undivided || even <= begin || even >= begin + double(p->size)) continue;
      const double first = begin + std::floor((even - begin) / size) * size;
      return even - first <= first + size - even ? first : first + size;
    }
    return even;
  }
  double begin_of(double k, double ranks) const {
    const runtime::PlacementRule* const rule = parameters.placement();
    if (rule == nullptr || k <= 0 || k >= ranks) return k * P / ranks;
    return double(rule->begin(parameters, int(k), int(ranks)));
  }
  // Trained elements of the largest shard where so many ranks share them.
  double largest_of(const runtime::ShardGroups& of) const {
    if (!uneven) return P / of.size;
    double most = 0;
    for (int rank = 0; rank < of.ranks; ++rank) most = std::max(most, share_in(of, rank, 0, P));
    return most;
  }
  // Bytes of the largest secondary shard; of a rank's trained parameters and its secondary shard together, since the
  // largest of both need not be on one rank.
  double most_secondary(bool with_own) const {
    double most = 0;
    for (int rank = 0; rank < groups.ranks; ++rank)
      most = std::max(most, (with_own ? C * share(rank, 0, P) : 0) + secondary_bytes(rank));
    return most;
  }
  // Of a step's samples, as the one at `place` of the data axis sees it.
  runtime::StepCut cut(int place = 0) const { return runtime::step_cut(plan, groups.ranks, place); }
  // Ranges of the gradients that are reduced apart, of experts and of all else.
  double runs() const { return E > 1 ? double(split.runs().size()) : 1; }
  // All-reduces of a step where gradients are replicated, at most: one a run, or one a bucket of DDP's, of which only a
  // piece's first and last may hold less than the cap.
  double all_reduces() const {
    const double cap = double(plan.layout.zero.ddp_bucket_elements);
    const double pieces = double(parameters.pieces().size());
    return cap > 0 ? std::min(double(parameters.trainable().size()) + 2, 2 * pieces + std::floor((P + H + 1) / cap))
                   : runs();
  }
  bool keeps() const { return keeping.groups() > 1; }  // all parameters once more in each group
  bool persists(const runtime::ParameterInfo& p) const {
    return p.size <= plan.layout.zero.persistence_threshold_elements;
  }
  // Bytes of a parameter where it is gathered: C an element, or in 8 bits one and 4 a block.
  double gathered_bytes(const runtime::ParameterInfo& p) const {
    const runtime::QuantisedWeightsPlan& quantised = plan.definition.quantised;
    return quantised.on() ? double(runtime::code_bytes(p, quantised.block)) : C * double(p.size);
  }
  // Bytes of a rank's secondary shard, which holds what travelled.
  double secondary_bytes(int rank) const {
    double bytes = 0;
    if (!keeps()) return bytes;
    for (const runtime::ParameterInfo& p : parameters.all())
      bytes += share_in(keeping, rank, double(p.offset), double(p.size)) * gathered_bytes(p) / double(p.size);
    return bytes;
  }
  double copies() const { return stage >= 1 ? kept : 0; }  // of others' shards on a rank

  const runtime::TrainPlan& plan;
  runtime::Parameters parameters;
  double P, F, H;  // elements: trained, frozen, the tied head's second use
  int E;           // ranks of an expert group
  runtime::GradientSplit split;
  double X;
  runtime::ShardGroups groups, keeping;
  int N;
  double kept;
  int stage;
  double C, G, M,
      O;  // bytes of an element: to compute with, of its gradient, of what the optimizer keeps, of this and its master
  bool uneven;       // shards end between matrices (Muon), or where a rule has them end
  double own = 0;    // trained elements of the largest shard
  double here = 1;   // workers that a rank serves at most, where they train apart, and
  double outer = 0;  // fp32 values a trained parameter that the outer step keeps
};

// The modules that stage 3 gathers, as lists of parameters that do not persist; elements of those that do.
using GatheredModule = std::vector<const runtime::ParameterInfo*>;
std::vector<GatheredModule> gathered_modules(const FormulaSizes& sizes);
double persistent_elements(const FormulaSizes& sizes);
// Bytes through which gathers in 8 bits pass: the largest module's, and those of what stays gathered.
double wire_bytes(const FormulaSizes& sizes);

// Bytes that a rank sends at most in so many steps, and exchanges a bucket, where gradients are quantised.
BudgetLine quantised_traffic(const FormulaSizes& sizes, std::int64_t steps);
int quantised_ways(const FormulaSizes& sizes);

// Layers [first, end) with experts, how many.
int routed_in(const FormulaSizes& sizes, int first, int end);

// Elements into and out of the activation of the widest mlp: of so many rows, and of as many slots as in experts.
double widest_mlp(const FormulaSizes& sizes, double rows, double slots);

// The expert group that the first rank is in, of micro-batches as large as they get. Not connected.
runtime::ExpertGroup expert_group(const FormulaSizes& sizes);
// Micro-batches that every rank goes through in all evaluations of a run of so many steps.
double evaluated_passes(const FormulaSizes& sizes, std::int64_t steps);

// Bytes that a group adds to the traffic of so many steps: gradients of what is no expert's, and rows of tokens. Empty
// where experts are not divided.
std::vector<BudgetLine> group_traffic(const FormulaSizes& sizes, std::int64_t steps);

// Calls of the same, over all ranks, at most. micro_batches: of the rank that has most, where gradients are
// replicated. buckets: of a micro-step, at most.
std::vector<BudgetLine> group_calls(const FormulaSizes& sizes, std::int64_t steps, int micro_batches, double buckets);

// Bytes that a rank of a context group sends to the others in so many steps, by kind of operation: rows to heads and
// back, and gradients of its own tokens. Empty where no tokens are shared.
std::vector<BudgetLine> context_traffic(const FormulaSizes& sizes, std::int64_t steps);

// Bytes of activations that a rank of a context group holds besides those of its own tokens: while it attends, rows of
// all tokens of its own heads and their gradients; the losses of all tokens.
double rows_by_heads(const FormulaSizes& sizes);

// Calls of context_traffic(), over all ranks, at most.
std::vector<BudgetLine> context_calls(const FormulaSizes& sizes, std::int64_t steps);

// Adds lines to those of the same name; others are appended.
void add_lines(std::vector<BudgetLine>& lines, const std::vector<BudgetLine>& more);

// Buckets of gradients that go to their owners, at most.
double buckets_at_most(const FormulaSizes& s);

}  // namespace seeksim::harness
