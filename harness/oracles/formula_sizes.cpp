#include "harness/oracles/formula_sizes.h"

#include <algorithm>
#include <cmath>

#include "runtime/layout/gpt2_parameters.h"
#include "runtime/layout/ring_order.h"
#include "runtime/layout/segments.h"

namespace seeksim::harness {
namespace {

// Ranks that share the batch.
int sharing(const FormulaSizes& s) { return s.groups.ranks * s.E; }

// Subtree roots of its own samples that a rank gives to the others of its group in a step.
double roots_in_group(const FormulaSizes& s, int rank) {
  const runtime::StepCut cut = s.cut();
  double count = 0;
  for (int k = 0; k < cut.count(); ++k) {
    const runtime::SampleRange samples = cut.samples_of_rank(k, rank);
    count += double(kernels::cover(samples.begin, samples.end, cut.leaves).size());
  }
  return count;
}

// Messages of rows in a step, of all layers: two each way a layer, and those that are recomputed.
struct RowsSent {
  double to_experts = 0, from_experts = 0;
};
RowsSent rows_sent(const FormulaSizes& s) {
  const int layers = s.plan.definition.model.layers, routed = routed_in(s, 0, layers);
  RowsSent sent{2.0 * routed, 2.0 * routed};
  for (const runtime::Segment& segment : runtime::segments_of(layers, s.plan.layout.checkpointing)) {
    if (!segment.recomputed) continue;
    sent.to_experts += routed_in(s, segment.first, segment.end);
    sent.from_experts += routed_in(s, segment.first, segment.end - 1);
  }
  return sent;
}

// Bytes that a rank sends to the others of its group in a step: rows of its own samples, with an expert or a gate each,
// and what its experts made of theirs.
double rows_to_group(const FormulaSizes& s, int rank) {
  const runtime::StepCut cut = s.cut();
  double own = 0, all = 0;
  for (int k = 0; k < cut.count(); ++k) {
    own += double(cut.samples_of_rank(k, rank).size());
    all += double(cut.samples(k, rank / s.E).size());
  }
  const RowsSent sent = rows_sent(s);
  const double places = double(expert_group(s).places()), row = s.C * s.plan.definition.model.width;
  const double gates_back = kFloat * routed_in(s, 0, s.plan.definition.model.layers);
  return places *
         (own * (s.E - 1) * sent.to_experts * (row + kFloat) + (all - own) * (sent.from_experts * row + gates_back));
}

// The samples of an evaluation, cut among those who share the batch.
runtime::StepCut evaluation_cut(const FormulaSizes& s) {
  return {.leaves = s.plan.definition.evaluation.samples,
          .members = s.groups.ranks,
          .grain = s.plan.definition.model.experts.samples,
          .each = s.E};
}

// The same of an evaluation: forward alone.
double evaluated_rows_to_group(const FormulaSizes& s, int rank) {
  const runtime::StepCut cut = evaluation_cut(s);
  const auto own = double(cut.samples_of_rank(0, rank).size()), all = double(cut.samples(0, rank / s.E).size());
  const double row = s.C * s.plan.definition.model.width;
  return double(expert_group(s).places()) * routed_in(s, 0, s.plan.definition.model.layers) *
         (own * (s.E - 1) * (row + kFloat) + (all - own) * row);
}

}  // namespace

std::vector<GatheredModule> gathered_modules(const FormulaSizes& s) {
  std::vector<GatheredModule> modules;
  const auto add = [&](const GatheredModule& all) {
    GatheredModule module;
    for (const runtime::ParameterInfo* p : all) {
      if (!s.persists(*p)) module.push_back(p);
    }
    modules.push_back(module);
  };
  for (int m = 0; m < s.parameters.modules(); ++m) add(s.parameters.module(m));
  return modules;
}

double persistent_elements(const FormulaSizes& s) {
  double all = 0;
  for (const runtime::ParameterInfo& p : s.parameters.all()) all += s.persists(p) ? double(p.size) : 0;
  return all;
}

double wire_bytes(const FormulaSizes& s) {
  if (!s.plan.definition.quantised.on()) return 0;
  double most = 0, kept = 0;
  for (const auto& module : gathered_modules(s)) {
    double bytes = 0;
    for (const runtime::ParameterInfo* p : module) bytes += s.gathered_bytes(*p);
    most = std::max(most, bytes);
  }
  for (const runtime::ParameterInfo& p : s.parameters.all()) kept += s.persists(p) ? s.gathered_bytes(p) : 0;
  return most + kept;
}

double evaluated_passes(const FormulaSizes& s, std::int64_t steps) {
  const runtime::EvaluationPlan& evaluation = s.plan.definition.evaluation;
  if (!evaluation.on()) return 0;
  const runtime::StepCut cut = evaluation_cut(s);
  double most = 0;
  for (int rank = 0; rank < sharing(s); ++rank) most = std::max(most, double(cut.samples_of_rank(0, rank).size()));
  return double(evaluation.count(steps)) * std::ceil(most / s.plan.evaluated_at_once());
}

int routed_in(const FormulaSizes& s, int first, int end) {
  const runtime::ExpertsPlan& experts = s.plan.definition.model.experts;
  return experts.on() ? std::max(0, end - std::max(first, experts.dense_layers)) : 0;
}

double widest_mlp(const FormulaSizes& s, double rows, double slots) {
  const runtime::ModelShape shape(s.plan.definition.model);
  const auto of = [&](runtime::Index expert, runtime::Index dense, runtime::Index shared) {
    const double of_token = std::max(shape.first_routed > 0 ? rows * double(dense) : 0, rows * double(shared));
    return std::max(shape.E > 0 ? slots * double(expert) : 0, of_token);
  };
  return of(shape.F, shape.dense.F, shape.shared.F) + of(shape.U, shape.dense.U, shape.shared.U);
}

runtime::ExpertGroup expert_group(const FormulaSizes& s) {
  return {runtime::expert_shape(s.plan, s.plan.samples_at_once()), s.E, 0, {}};
}

std::vector<BudgetLine> group_traffic(const FormulaSizes& s, std::int64_t steps) {
  if (s.E == 1) return {};
  const runtime::EvaluationPlan& evaluation = s.plan.definition.evaluation;
  double roots = 0, rows = 0;
  for (int rank = 0; rank < sharing(s); ++rank) {
    roots = std::max(roots, roots_in_group(s, rank));
    const double evaluated = evaluation.on() ? double(evaluation.count(steps)) * evaluated_rows_to_group(s, rank) : 0;
    rows = std::max(rows, double(steps) * rows_to_group(s, rank) + evaluated);
  }
  const double others = s.P + s.H + 1 - s.X;
  return {{"group_gather", double(steps) * roots * (s.E - 1) * others * kFloat, 0, false,
           "4 roots (E-1)(P - X + H) a step: of what is no expert's"},
          {"all_to_all", rows, 0, false,
           "places x (rows of a sample to E-1 ranks, and those of their samples back), each twice a layer, and what is "
           "recomputed; once a layer in an evaluation"}};
}

std::vector<BudgetLine> group_calls(const FormulaSizes& s, std::int64_t steps, int micro_batches, double buckets) {
  if (s.E == 1) return {};
  const double each = double(steps) * sharing(s), micro_steps = s.stage >= 2 ? s.cut().count() : micro_batches;
  const RowsSent rows = rows_sent(s);
  return {{"group_gather", each * (s.stage >= 2 ? micro_steps * buckets : 1), 0, true,
           "one a rank and step, or (stages 2 and 3) micro-step and bucket"},
          {"all_to_all",
           each * micro_steps * (rows.to_experts + rows.from_experts) +
               evaluated_passes(s, steps) * sharing(s) * 2 * s.plan.definition.model.layers,
           0, true, "four a layer, rank and micro-step, and one or two where it is recomputed; two in an evaluation"}};
}

// ---- quantised gradients -------------------------------------------------------------------------------------------

namespace {

// Bytes of each rank's shard, and of its part of the tied head's use, in codes of so many bits.
std::vector<double> coded_shares(const FormulaSizes& s, int bits) {
  const int block = s.plan.definition.quantised_gradients.block;
  std::vector<double> shares(std::size_t(s.N), 0.0);
  const auto add = [&](const runtime::ParameterInfo& p) {
    const double each = double(runtime::code_bytes(p, block, bits)) / double(p.size);
    for (int rank = 0; rank < s.N; ++rank)
      shares[std::size_t(rank)] += each * s.share(rank, double(p.offset), double(p.size));
  };
  for (const runtime::ParameterInfo* p : s.parameters.trainable()) add(*p);
  if (s.H > 0) add(s.parameters.wte());
  return shares;
}

// Of a step. A group's elements go to whoever adds them up, who is their owner; or, where sums of groups go on in codes
// too, a rank that has one of these groups: the owner, if it is one, else they take turns.
struct InCodes {
  explicit InCodes(const FormulaSizes& sizes)
      : s(sizes),
        cut(sizes.cut()),
        samples(double(s.plan.definition.global_batch) / s.plan.definition.quantised_gradients.groups),
        inner(s.plan.definition.quantised_gradients.inner),
        group(coded_shares(s, s.plan.definition.quantised_gradients.bits)),
        sum(coded_shares(s, s.plan.definition.quantised_gradients.outer_bits)) {}

  bool sums() const {
    return inner > 1 && (cut.count() == 1 || std::fmod(double(cut.window(0).size()), inner * samples) == 0);
  }
  double groups(int k, int rank) const { return double(cut.samples(k, rank).size()) / samples; }
  // Of the samples of the number-th sum.
  double groups_in(int k, int rank, double number) const {
    const runtime::SampleRange own = cut.samples(k, rank);
    const double begin = std::max(double(own.begin), number * inner * samples);
    return std::max(0.0, std::min(double(own.end), (number + 1) * inner * samples) - begin) / samples;
  }
  // Where a rank's part ends, half a block is on the one side or on the other.
  struct Sent {
    double bytes = 0, slack = 0;
  };
  double half_block(int bits) const {
    const double ends = s.H > 0 ? 4 : 2;
    const int block = s.plan.definition.quantised_gradients.block;
    return ends * double(kernels::code_bytes(kernels::kBlock / 2, block, bits));
  }
  Sent sent(int rank) const {
    Sent all;
    for (int k = 0; k < cut.count(); ++k) {
      const double here = groups(k, rank);
      if (rank + 1 < s.N) all.bytes += kFloat * here;  // losses
      if (!sums()) all.slack += here * half_block(s.plan.definition.quantised_gradients.bits);
      for (int owner = 0; owner < s.N && !sums(); ++owner)
        if (owner != rank) all.bytes += here * group[std::size_t(owner)];
      const runtime::SampleRange window = cut.window(k);
      for (double number = double(window.begin) / (inner * samples);
           sums() && number * inner * samples < double(window.end); ++number)
        add_sum(k, rank, number, all);
    }
    return all;
  }
  void add_sum(int k, int rank, double number, Sent& all) const {
    std::vector<int> makers;
    for (int other = 0; other < s.N; ++other)
      if (groups_in(k, other, number) > 0) makers.push_back(other);
    const double here = groups_in(k, rank, number);
    for (int owner = 0; owner < s.N && here > 0; ++owner) {
      const bool makes = groups_in(k, owner, number) > 0;
      const int adds = makes ? owner : makers[std::size_t(owner) % makers.size()];
      if (adds != rank) all.bytes += here * group[std::size_t(owner)];
      if (adds == rank) all.slack += here * half_block(s.plan.definition.quantised_gradients.bits);
      if (adds != rank || owner == rank) continue;
      all.bytes += sum[std::size_t(owner)];
      all.slack += half_block(s.plan.definition.quantised_gradients.outer_bits);
    }
  }

  const FormulaSizes& s;
  runtime::StepCut cut;
  double samples;  // of a group
  double inner;
  std::vector<double> group, sum;  // bytes of each rank's share
};

}  // namespace

int quantised_ways(const FormulaSizes& s) {
  return s.plan.definition.quantised_gradients.on() && InCodes(s).sums() ? 2 : 1;
}

BudgetLine quantised_traffic(const FormulaSizes& s, std::int64_t steps) {
  const InCodes codes(s);
  InCodes::Sent most;
  for (int rank = 0; rank < s.N; ++rank) {
    const InCodes::Sent sent = codes.sent(rank);
    most = {std::max(most.bytes, sent.bytes), std::max(most.slack, sent.slack)};
  }
  return {"reduce_scatter", double(steps) * most.bytes, double(steps) * most.slack, false,
          codes.sums() ? "codes of its groups to who adds them up, codes of sums to their owners, and losses"
                       : "groups x the codes of P(N-1)/N and what it does not own of H, and losses"};
}

// ---- context groups ------------------------------------------------------------------------------------------------

namespace {

using runtime::SampleRange;

// Of a step, what one group goes through.
struct Share {
  double samples = 0;
  double blocks = 0;  // nodes of the step's tree, of each micro-batch
  double micro_batches = 0;
};

Share share_of(const FormulaSizes& s, int group) {
  const runtime::StepCut cut = s.cut();
  std::vector<SampleRange> all;
  for (int k = 0; k < cut.count() && s.stage >= 2; ++k) all.push_back(cut.samples_of_rank(k, group));
  if (s.stage < 2) all = runtime::micro_batches(cut.samples_of_rank(0, group), s.plan.layout.micro_batch);
  Share share;
  for (const SampleRange& samples : all) {
    if (samples.size() == 0) continue;
    share.samples += double(samples.size());
    const runtime::QuantisedGradientsPlan& quantised = s.plan.definition.quantised_gradients;
    share.blocks += quantised.on() ? double(samples.size() * quantised.groups / cut.leaves)
                                   : double(kernels::cover(samples.begin, samples.end, cut.leaves).size());
    share.micro_batches += 1;
  }
  return share;
}

struct Most : Share {
  bool alike = true;  // all groups have as much
};
Most most_of(const FormulaSizes& s) {
  Most most;
  for (int group = 0; group < s.groups.ranks; ++group) {
    const Share one = share_of(s, group);
    if (group > 0 && (one.samples != most.samples || one.blocks != most.blocks)) most.alike = false;
    most.samples = std::max(most.samples, one.samples);
    most.blocks = std::max(most.blocks, one.blocks);
    most.micro_batches = std::max(most.micro_batches, one.micro_batches);
  }
  return most;
}

double held_out_of_group(const FormulaSizes& s) {
  const runtime::StepCut cut{.leaves = s.plan.definition.evaluation.samples,
                             .members = s.groups.ranks,
                             .grain = s.plan.definition.model.experts.samples};
  double most = 0;
  for (int group = 0; group < s.groups.ranks; ++group)
    most = std::max(most, double(cut.samples_of_rank(0, group).size()));
  return most;
}

// Layers whose forward pass a step makes: each, and once more where it is recomputed.
double layers_forward(const FormulaSizes& s) {
  const int layers = s.plan.definition.model.layers;
  double count = layers;
  for (const runtime::Segment& segment : runtime::segments_of(layers, s.plan.layout.checkpointing))
    if (segment.recomputed) count += segment.layers();
  return count;
}

// Elements of a row of keys and values.
double key_columns(const runtime::ModelShape& shape) { return double(shape.K * 2 * shape.D); }

// Bytes that ring attention needs on the rank that needs most: two blocks of keys and values; the nodes that wait of
// each row's sum over keys, with its maximum and sum; those of own keys' sums over queries; and two hops' of others'.
double ring_bytes(const FormulaSizes& s) {
  const runtime::ModelShape shape(s.plan.definition.model);
  const runtime::ContextCut cut = runtime::context_cut(s.plan.definition.model, s.plan.layout.parallel);
  const double samples = double(s.plan.samples_at_once()), rows = samples * double(cut.size());
  const double keys = key_columns(shape), of_row = double(shape.H * (shape.D + 2));
  double most = 0;
  for (int rank = 0; rank < cut.ranks; ++rank) {
    const runtime::RingOrder order(cut, rank);
    const double sent = 2.0 * order.pairs_at_most() * samples * double(cut.chunk_size()) * keys;
    const double floats = rows * (order.query_slots() * of_row + order.key_slots() * keys) + std::max(sent, 1.0);
    most = std::max(most, kFloat * floats);
  }
  return 2 * s.C * rows * keys + most;
}

// Ranges of gradients that are summed at once, at most.
double ranges(const FormulaSizes& s) { return double(s.parameters.trainable().size()) + 1; }

}  // namespace

double rows_by_heads(const FormulaSizes& s) {
  const int context = s.plan.layout.parallel.context;
  if (context == 1) return 0;
  const runtime::ModelShape shape(s.plan.definition.model);
  const double tokens = double(s.plan.samples_at_once()) * s.plan.definition.model.context;
  if (s.plan.layout.parallel.ring_attention) return ring_bytes(s) + kFloat * tokens;
  return s.C * tokens / context * double(shape.C + shape.Q) + kFloat * tokens;
}

std::vector<BudgetLine> context_traffic(const FormulaSizes& s, std::int64_t steps) {
  const runtime::ModelPlan& m = s.plan.definition.model;
  const double c = s.plan.layout.parallel.context, others = c - 1;
  if (others == 0) return {};
  const runtime::ModelShape shape(m);
  const Most most = most_of(s);
  const double row = s.C * double(shape.Q + shape.C) * others / c, tokens = m.context / c;
  const double trained = double(steps) * most.samples * tokens * row * (layers_forward(s) + m.layers);
  const double evaluated = double(s.plan.definition.evaluation.count(steps)) * held_out_of_group(s) * tokens * row;
  const double chunks = s.plan.layout.parallel.context_zigzag ? 2 : 1, elements = s.P + s.H;
  const double scattered = double(steps) * chunks * most.samples, gathered = double(steps) * most.blocks;
  const bool at_most = !most.alike;
  const double block = tokens * key_columns(shape) * others, forward = layers_forward(s) + m.layers;
  const double evaluated_blocks =
      double(s.plan.definition.evaluation.count(steps)) * held_out_of_group(s) * block * s.C * m.layers;
  const double hops = double(steps) * most.samples * block * (s.C * forward + kFloat * m.layers) + evaluated_blocks;
  const BudgetLine attending =
      s.plan.layout.parallel.ring_attention
          ? BudgetLine{"ring_hop", hops, 0, at_most,
                       "c-1 times the keys and values of own tokens: a layer forward, recomputed, and backward; and in "
                       "fp32 their gradients"}
          : BudgetLine{
                "all_to_all", trained + evaluated * m.layers, 0, at_most,
                "rows of own tokens (c-1)/c, of qkv and of attention: a layer forward, recomputed, and backward"};
  return {
      attending,
      {"reduce_scatter", scattered * elements * others / c * kFloat, scattered * ranges(s) * kFloat, at_most,
       "4(P + H)(c-1)/c for each chunk of each sample"},
      {"group_gather", gathered * elements * others / c * kFloat, gathered * ranges(s) * others * kFloat, at_most,
       "4(P + H)(c-1)/c for each block of samples"},
  };
}

std::vector<BudgetLine> context_calls(const FormulaSizes& s, std::int64_t steps) {
  const int context = s.plan.layout.parallel.context;
  if (context == 1) return {};
  const double ranks = double(s.groups.ranks) * context, passes = double(steps) * ranks * most_of(s).micro_batches;
  const double layers = s.plan.definition.model.layers;
  const double hops = context - 1, evaluated = evaluated_passes(s, steps) * ranks * layers;
  const BudgetLine attending =
      s.plan.layout.parallel.ring_attention
          ? BudgetLine{"ring_hop", hops * (passes * (layers_forward(s) + 2 * layers) + evaluated), 0, true,
                       "c-1 a layer, rank and micro-batch forward and recomputed, twice that backward"}
          : BudgetLine{"all_to_all", passes * 2 * (layers_forward(s) + layers) + 2 * evaluated, 0, true,
                       "two a layer, rank and micro-batch forward, recomputed and backward; in an evaluation forward "
                       "only"};
  return {attending,
          {"reduce_scatter", passes * ranges(s), 0, true, "one a rank, micro-batch and parameter"},
          {"group_gather", passes * ranges(s), 0, true, "one a rank, micro-batch and parameter"}};
}

void add_lines(std::vector<BudgetLine>& lines, const std::vector<BudgetLine>& more) {
  for (const BudgetLine& line : more) {
    const auto same =
        std::find_if(lines.begin(), lines.end(), [&](const BudgetLine& l) { return l.name == line.name; });
    if (same == lines.end()) {
      lines.push_back(line);
      continue;
    }
    same->bytes += line.bytes, same->slack += line.slack;
    same->at_most = same->at_most || line.at_most;
    same->formula += "; and " + line.formula;
  }
}

// Parameters go into a bucket until the next one does not fit: of two buckets side by side the sum is more than one
// holds. One that is larger than a bucket goes alone, and ends the bucket before it.
double buckets_at_most(const FormulaSizes& s) {
  const double bucket = std::max<double>(double(s.plan.layout.zero.reduce_bucket_elements), 1);
  double large = 0, rest = s.P + s.H + 1, units = 2;  // the tied head's use and the loss
  for (const runtime::ParameterInfo* p : s.parameters.trainable()) {
    units += 1;
    if (double(p->size) > bucket) large += 1, rest -= double(p->size);
  }
  if (s.H > bucket) large += 1, rest -= s.H;
  return std::min(units, 2 * large + 2 * std::ceil(std::max(rest, 0.0) / bucket) + 1);
}

}  // namespace seeksim::harness
