#include "runtime/trainer/evaluation.h"

#include <algorithm>

#include "kernels/pointwise.h"
#include "kernels/tree.h"
#include "runtime/model/packing.h"
#include "runtime/seams/edges.h"

namespace seeksim::runtime {

using kernels::Lane;
using kernels::Vec;

namespace {

// Subtree roots that a member has at most.
constexpr Index kRootsMax = 128;

}  // namespace

void Evaluation::allocate() {
  if (!on()) return;
  data_ = held_out_source(bench_.definition());
  const Index floats = samples() + kRootsMax + 1;
  losses_ = bench_.rank.device.allocate(std::size_t(floats) * sizeof(float), MemoryTag::scratch, "held-out losses");
}

TreeOwnership Evaluation::ownership() const {
  return {samples(), world_.grid().replicas(), bench_.plan.layout.parallel.expert,
          bench_.definition().model.experts.samples};
}

// Every rank goes through as many micro-batches as the one with most samples, empty ones at the end: where parameters
// are gathered, or experts are divided, all have to come.
void Evaluation::schedule() {
  if (!on()) return;
  const int each = bench_.plan.layout.parallel.expert, first = world_.share() / each * each;
  const StepCut cut{.leaves = samples(),
                    .members = world_.grid().replicas(),
                    .grain = bench_.definition().model.experts.samples,
                    .each = each};
  const Index most = bench_.plan.evaluated_at_once();
  Index count = 0;
  for (int share = 0; share < world_.shares(); ++share)
    count = std::max(count, (cut.samples_of_rank(0, share).size() + most - 1) / most);
  of_member_ = cut.samples(0, first / each);
  of_rank_.clear();
  of_group_.clear();
  for (int share = first; share < first + each; ++share) {
    const SampleRange own = of_rank_.emplace_back(cut.samples_of_rank(0, share));
    of_group_.push_back(micro_batches(own, most));
    of_group_.back().resize(std::size_t(count), {own.end, own.end});
  }
}

void Evaluation::before_step() {
  const bool due = bench_.definition().evaluation.is_due(bench_.progress.step());
  if (due && bench_.planted->evaluates(false)) run();
}

void Evaluation::after_the_last() {
  if (!on() || !bench_.planted->evaluates(true)) return;
  run();
  // Stages without the losses have waited for nothing, and the room for activations is given back now.
  bench_.finish_all(bench_.compute.last(), Edge::evaluated);
}

void Evaluation::run() {
  Launcher& compute = bench_.compute;
  const std::int64_t steps = bench_.progress.step();
  bench_.stand_at(world_.epoch(), steps);
  if (GatheredWeights* gathered = tensors_.gathered()) gathered->begin_step(compute, steps);
  passes_.watch(false);
  go_forward();
  passes_.watch(true);
  if (!tensors_.parameters().heads()) return;  // the last stage has the losses
  EvaluationRecord record;
  record.steps = steps;
  record.epoch = world_.epoch();
  record.loss = sum_up();
  record.at_ns = bench_.rank.clock.now();
  bench_.observer.evaluated(bench_.rank.id, record);
}

// Where a stage has several pieces: as many micro-batches as there are stages through one of them, then through the
// next one.
void Evaluation::go_forward() {
  const int count = int(of_group_.front().size()), stages = bench_.plan.layout.parallel.pipeline;
  const std::size_t pieces = tensors_.parameters().pieces().size();
  for (int first = 0; first < count; first += stages) {
    for (std::size_t piece = 0; piece < pieces; ++piece) {
      for (int k = first; k < std::min(first + stages, count); ++k) forward(k, piece);
    }
  }
  bench_.compute.mute(false);
  bench_.compute.phase(Phase::evaluation);
}

void Evaluation::forward(int micro_batch, std::size_t piece) {
  const ModelPiece& about = tensors_.parameters().pieces()[piece];
  const std::vector<SampleRange>& own = of_group_[std::size_t(world_.share() % int(of_group_.size()))];
  const SampleRange& range = own[std::size_t(micro_batch)];
  const Index count = range.size();
  const bool here = count > 0;
  Launcher& compute = bench_.compute;
  PipelineLinks* const links = world_.links();
  InFlight& flight = passes_.free_flight(piece);
  flight.micro_batch = micro_batch;
  compute.mute(!here);
  begin_group(micro_batch);
  if (here && (about.embeds || about.heads)) fetch(*flight.model, range, micro_batch);
  compute.phase(Phase::evaluation, micro_batch);
  if (here && !about.embeds) links->receive_activation(flight, compute, count);
  if (here && links != nullptr) links->before_forward(flight, compute);
  const PackingPlan& packing = bench_.definition().data.packing;
  if (packing.on()) flight.documents = documents_of(data_, packing.separator, range.begin, count);
  const Batch batch{.samples = count,
                    .first_sample = range.begin,
                    .step = bench_.progress.step(),
                    .seed = bench_.definition().training_seed,
                    .trains = bench_.planted->evaluates_with_dropout(),
                    .loss_scale = bench_.scale.at_loss,
                    .separator = packing.separator,
                    .documents = packing.on() ? &flight.documents : nullptr,
                    .fp8 = passes_.fp8(false)};
  if (GatheredWeights* gathered = tensors_.gathered()) gathered->begin_evaluation(micro_batch, piece);
  flight.model->forward(compute, tensors_.in_use(), batch);
  flight.gone_forward = compute.queue().record();
  if (about.heads) {
    flight.model->loss(compute, count, batch.loss_scale);
    if (here)
      copy_values(compute, "held-out losses", SEEKSIM_SITE, AnyVec(flight.model->sample_losses(count)),
                  AnyVec(vec<float>(*losses_, range.begin - of_member_.begin, count)));
    if (here) bench_.planted->evaluated(bench_, tensors_, *flight.model, batch);
  } else if (here) {
    links->send_activation(flight, compute, count);
  }
  flight.over = compute.queue().record();
  flight.micro_batch = -1;
}

void Evaluation::fetch(Model& model, const SampleRange& samples, int micro_batch) {
  Launcher& compute = bench_.compute;
  compute.phase(Phase::evaluation, micro_batch);
  compute.samples(-1, 0);  // no batch of the training
  launch_tokens(compute, SEEKSIM_SITE, data_, samples.begin, samples.size(), Mutant::none, model.inputs(samples.size()),
                model.targets(samples.size()));
}

void Evaluation::begin_group(int micro_batch) {
  ExpertGroup* const group = world_.experts();
  if (group == nullptr) return;
  std::vector<SampleRange> samples;
  std::vector<std::vector<SampleRange>> blocks;
  for (const std::vector<SampleRange>& of_rank : of_group_) {
    samples.push_back(of_rank[std::size_t(micro_batch)]);
    blocks.emplace_back();  // of gradients, and there are none
  }
  group->begin(samples, blocks);
}

// Afterwards each rank of an expert group has the losses of all its samples.
void Evaluation::gather_in_group() {
  ExpertGroup* const group = world_.experts();
  if (group == nullptr) return;
  std::vector<ShardInfo> shares;
  for (const SampleRange& own : of_rank_) shares.push_back({own.begin - of_member_.begin, own.size()});
  group->communicator()->all_gather(bench_.compute.queue(),
                                    bench_.op(OpKind::all_gather, Phase::evaluation, "held-out losses", SEEKSIM_SITE),
                                    AnyVec(vec<float>(*losses_, 0, of_member_.size())), shares);
}

// One over the tokens in two exact parts, as a step's loss has it.
float Evaluation::sum_up() {
  Launcher& compute = bench_.compute;
  gather_in_group();
  const Definition& d = bench_.definition();
  const LossScale scale(
      std::max<Index>(1, tokens_with_loss(data_, d.data.packing.separator, d.model.context, 0, samples())));
  const float factor =
      scale.at_loss * bench_.planted->evaluation_factor(of_member_.size(), samples(), world_.grid().replicas());
  const std::vector<kernels::TreeNode> nodes = ownership().nodes(world_.place().data);
  std::vector<VecView<const float>> roots;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    const Index first = kernels::first_leaf(nodes[i]) - of_member_.begin;
    const Index end = i + 1 < nodes.size() ? kernels::first_leaf(nodes[i + 1]) - of_member_.begin : of_member_.size();
    const VecView<float> root = vec<float>(*losses_, samples() + Index(i), 1);
    compute(
        "held-out loss", SEEKSIM_SITE, memory_cost(end - first),
        [factor](Lane lane, Vec<const float> losses, Vec<float> sum) { kernels::tree_fold(lane, losses, sum, factor); },
        vec<const float>(*losses_, first, end - first), root);
    roots.push_back(reads(root));
  }
  const VecView<float> sum = vec<float>(*losses_, samples() + kRootsMax, 1);
  Queue& queue = compute.queue();
  const Op op =
      world_.comm().all_reduce(queue, bench_.op(OpKind::all_reduce, Phase::evaluation, "held-out loss", SEEKSIM_SITE),
                               ownership(), roots, scale.at_root, sum);
  bench_.host_after(world_.comm(), queue.record(), op, Edge::evaluated);
  return bench_.host_value(SEEKSIM_SITE, reads(sum));
}

}  // namespace seeksim::runtime
