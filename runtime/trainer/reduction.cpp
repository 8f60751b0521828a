#include "runtime/trainer/reduction.h"

#include <algorithm>
#include <utility>

#include "kernels/check.h"
#include "kernels/tree.h"
#include "runtime/rules/bugs.h"
#include "runtime/rules/mutants.h"
#include "runtime/seams/edges.h"

namespace seeksim::runtime {

using kernels::Lane;
using kernels::Vec;

void Reduction::allocate() {
  const Parameters& p = tensors_.parameters();
  if (p.part().by_experts) split_.emplace(p);
  if (bench_.shards_gradients()) return;
  for (std::size_t piece = 0; split_ && piece < p.pieces().size(); ++piece) {
    trees_.emplace_back(bench_.rank.device, split_->size(false, piece));
    of_experts_.emplace_back(bench_.rank.device, split_->size(true, piece));
  }
  if (split_) return;
  if (bench_.plan.layout.zero.ddp_bucket_elements > 0) return void(bucketed_.emplace(bench_.rank, p, bench_.plan));
  for (std::size_t piece = 0; piece < p.pieces().size(); ++piece)
    trees_.emplace_back(bench_.rank.device, p.gradient_end(piece) - p.gradient_begin(piece));
  if (bench_.definition().quantised_gradients.on()) round_groups();
  if (bench_.shards_optimizer() && trees_.size() == 1 && tensors_.sums() != nullptr)
    trees_.front().adopt(*tensors_.sums());
}

// What a group adds is rounded here too, though none of it travels.
void Reduction::round_groups() {
  const Parameters& p = tensors_.parameters();
  codes_.emplace(p, bench_.plan);
  for (std::size_t piece = 0; piece < trees_.size(); ++piece)
    trees_[piece].round_nodes(codes_->rounding(p.gradient_begin(piece)));
}

void Reduction::connect(Index blocks) {
  ShardKeeper* const keeper = tensors_.keeper();
  Residuals* const residuals = tensors_.residuals();
  if (LowRankFactors* factors = tensors_.factors()) {
    low_rank_.emplace(bench_.rank, tensors_.parameters(), bench_.plan, *residuals, *factors);
    low_rank_->connect(world_.comm());
  } else if (residuals != nullptr) {
    partition_.emplace(tensors_.parameters(), world_.comm().size());
    compressed_.emplace(bench_.rank, tensors_.parameters(), bench_.plan, *residuals);
    compressed_->connect(world_.comm(), keeper != nullptr ? keeper->partition() : *partition_);
  }
  if (bucketed_) bucketed_->connect(world_.comm(), ownership());
  if (keeper == nullptr) return;
  reducer_.emplace(bench_.rank, tensors_.parameters(), bench_.plan);
  reducer_->connect(world_.shards(), keeper->partition(), world_.cut(), world_.replicas());
  if (keeper->speculates() && (world_.replica() == nullptr || !world_.replica()->shares()))
    reducer_->tell([this, keeper](Index at, Index n) { keeper->gradients_came(reducer_->at_home(), at, n); });
  if (GatheredWeights* gathered = tensors_.gathered()) {
    gathered->connect(world_.shards(), keeper->partition(), keeper->own().on_device, keeper->own().frozen,
                      keeper->own().swapped.get(), world_.secondary());
  }
  if (!bench_.shards_gradients()) return;
  if (split_) group_.emplace(bench_.rank, *split_, *world_.experts(), bench_.plan.bug);
  buckets_.emplace(bench_.rank.device, bench_.plan, *reducer_, blocks, group_ ? &*group_ : nullptr);
}

void Reduction::disconnect() {
  compressed_.reset();
  low_rank_.reset();
  partition_.reset();
  buckets_.reset();
  group_.reset();
  reducer_.reset();
}

void Reduction::give_back() {
  for (GradientTree& tree : trees_) tree.give_back();
  for (GradientTree& tree : of_experts_) tree.give_back();
  if (bucketed_) bucketed_->give_back();
}

int Reduction::level() const {
  return bench_.definition().compression.on() && !compresses_ ? CompressionPlan::kNoLevel : bench_.group_level();
}

// A member's samples are those of its groups, and the tree over samples is the tree over groups above them.
TreeOwnership Reduction::ownership() const {
  const CompressionPlan& plan = bench_.definition().compression;
  return plan.on() ? TreeOwnership{plan.groups, world_.comm().size()} : world_.ownership();
}

void Reduction::begin_step() {
  const std::int64_t made =
      bench_.plan.bug.is(Bug::freeze_counts_skipped) ? bench_.progress.step() : tensors_.optimizer_steps();
  compresses_ = bench_.definition().compression.compresses(bench_.progress.step(), made);
  const Index leaves = bench_.definition().global_batch;
  for (GradientTree& tree : trees_) tree.begin(leaves, codes_ ? CompressionPlan::kNoLevel : level());
  for (GradientTree& tree : of_experts_) tree.begin(leaves);
  if (bucketed_)
    bucketed_->begin_step(bench_.progress.step(), tensors_.sums(0, tensors_.parameters().gradient_size()),
                          bench_.scale.at_root);
  if (!reducer_) return;
  // Where gradients are replicated a step has one reduction, and what is between micro-batches is in this rank's tree.
  const ElementType between = bench_.shards_gradients() ? accumulator() : ElementType::f32;
  reducer_->begin_step(bench_.progress.step(), tensors_.keeper()->own().sums, bench_.scale.at_root * average().after,
                       between);
}

void Reduction::take(const SampleRange& samples, int micro_batch, std::size_t piece, const Backward& backward) {
  const std::vector<kernels::TreeNode> nodes = nodes_of(samples, bench_.definition().global_batch, level());
  if (buckets_) {  // each full bucket goes to its owners at once
    reducer_->begin_reduction(micro_batch, piece);
    if (group_) group_->begin(bench_.definition().global_batch, nodes_of_group());
    buckets_->begin(bench_.compute, piece, Index(nodes.size()), average().before);
    backward(*buckets_);
    reducer_->end_reduction();
    return;
  }
  if (split_) return take_divided(samples, piece, backward);
  if (bucketed_) {
    const bool last = micro_batch + 1 == int(world_.micro_batches_of(world_.share()).size());
    bucketed_->begin(bench_.compute, piece, nodes, last);
    return backward(*bucketed_);
  }
  const Parameters& p = tensors_.parameters();
  GradientTree& tree = trees_[piece];
  const Index begin = p.gradient_begin(piece), end = p.gradient_end(piece);
  std::vector<VecView<float>> out;
  for (const kernels::TreeNode node : nodes) out.push_back(tree.open(node));
  NodeSink sink(out, begin);
  backward(sink);
  for (const kernels::TreeNode node : nodes) tree.close(bench_.compute, node);
  tree.round(bench_.compute, accumulator(), std::min(end, p.loss_offset()) - begin);
}

// Of the micro-batch under way: those of each rank of the group.
std::vector<std::vector<kernels::TreeNode>> Reduction::nodes_of_group() const {
  std::vector<std::vector<kernels::TreeNode>> nodes;
  for (const SampleRange& of_rank : world_.experts()->samples())
    nodes.push_back(nodes_of(of_rank, bench_.definition().global_batch));
  return nodes;
}

// Nodes of this rank's samples, and of the experts that are here nodes of the whole group's.
void Reduction::take_divided(const SampleRange& samples, std::size_t piece, const Backward& backward) {
  const Index leaves = bench_.definition().global_batch;
  const std::vector<kernels::TreeNode> own = nodes_of(samples, leaves);
  std::vector<kernels::TreeNode> all;
  for (const std::vector<kernels::TreeNode>& nodes : nodes_of_group())
    all.insert(all.end(), nodes.begin(), nodes.end());
  GradientTree &others = trees_[piece], &experts = of_experts_[piece];
  std::vector<VecView<float>> out, out_of_experts;
  for (const kernels::TreeNode node : own) out.push_back(others.open(node));
  for (const kernels::TreeNode node : all) out_of_experts.push_back(experts.open(node));
  SplitSink sink(*split_, out, out_of_experts);
  backward(sink);
  for (const kernels::TreeNode node : own) others.close(bench_.compute, node);
  const ForTheGroup here(bench_.compute, world_.experts());
  for (const kernels::TreeNode node : all) experts.close(bench_.compute, node);
}

// What is no expert's, from the ranks of the group: afterwards each has the subtree roots of all their samples.
void Reduction::gather_in_group() {
  ExpertGroup& group = *world_.experts();
  Communicator& comm = *group.communicator();
  const int first = world_.share() - group.me();
  std::vector<Piece> pieces;
  const auto add = [&](int rank, bool send, const Range& r) {
    if (r.lo < r.hi) pieces.push_back({comm.members()[std::size_t(rank)], send, r.buffer, r.lo, r.hi, nullptr, r.type});
  };
  std::vector<std::pair<GradientTree*, kernels::TreeNode>> theirs;
  for (GradientTree& tree : trees_) {
    const std::vector<VecView<const float>> own = tree.parts();
    for (int rank = 0; rank < group.ranks(); ++rank) {
      if (rank == group.me()) continue;
      for (const VecView<const float>& root : own) add(rank, true, root.range());
      for (const kernels::TreeNode node :
           nodes_of(world_.cut().samples_of_rank(0, first + rank), bench_.definition().global_batch)) {
        add(rank, false, tree.open(node).range());
        theirs.emplace_back(&tree, node);
      }
    }
  }
  Queue& queue = bench_.rank.device.communication_queue();
  const Op op = comm.exchange(
      queue, bench_.op(OpKind::group_gather, Phase::grad_reduce, "gradients of a group", SEEKSIM_SITE), pieces);
  comm.wait(queue.record(), op);
  Launcher launch(queue, bench_.rank.id);
  launch.at(world_.epoch(), bench_.progress.step());
  launch.phase(Phase::grad_reduce);
  for (const auto& [tree, node] : theirs) tree->close(launch, node);
}

// This rank's subtree roots of a bucket.
std::vector<VecView<const float>> Reduction::roots(const Bucket& bucket) const {
  const Index n = bucket.hi - bucket.lo;
  std::vector<VecView<const float>> parts;
  if (split_) {
    const GradientSplit::Run& run = split_->run_of(bucket.lo);
    const GradientTree& tree = run.experts ? of_experts_[run.piece] : trees_[run.piece];
    for (const VecView<const float>& node : tree.parts()) parts.push_back(node.part(run.at + bucket.lo - run.lo, n));
    return parts;
  }
  const std::size_t piece = tensors_.parameters().piece_of(bucket.lo);
  const Index begin = tensors_.parameters().gradient_begin(piece);
  for (const VecView<const float>& node : trees_[piece].parts()) parts.push_back(node.part(bucket.lo - begin, n));
  return parts;
}

void Reduction::end_passes() {
  if (bucketed_) bucketed_->finish(bench_.compute);
}

void Reduction::finish(VecView<float> loss) {
  if (!bench_.shards_gradients()) {
    for (GradientTree& tree : trees_) tree.scale(bench_.compute, average().before);
    come_late();
    // By the host, so that an operation counts as joined when its data is there.
    bench_.host_after(world_.comm(), bench_.compute.queue().record(), bench_.compute.last(), Edge::backward_done);
  }
  if (split_ && !bench_.shards_gradients()) gather_in_group();
  if (compresses_) return low_rank_ ? reduce_factors() : reduce_compressed(loss);
  if (bench_.definition().local_sgd.on()) return keep_apart();
  if (bench_.shards_optimizer()) return reduce_to_owners(loss);
  split_ ? all_reduce_divided() : all_reduce();
  add_head_use();
  add_other_stage();
  hold_rounded();
}

// Where gradients come late: what this step's samples gave waits, and what waited long enough is reduced in its stead.
// In units of the gradient itself, as the loss scale may move meanwhile.
void Reduction::come_late() {
  LateGradients* const late = tensors_.late();
  if (late == nullptr) return;
  std::vector<VecView<float>> fresh = trees_.front().values();
  for (VecView<float>& one : fresh) one = one.part(0, tensors_.parameters().loss_offset());
  const double scale = bench_.progress.scaler().scale();
  bench_.compute.phase(Phase::grad_reduce);
  late->exchange(bench_.compute, tensors_.optimizer_steps(), unscale_factor(scale), float(scale), fresh);
  trees_.front().join(bench_.compute);
}

void Reduction::all_reduce() {
  Queue& queue = bench_.rank.device.communication_queue();
  if (bucketed_) return bench_.host_after(world_.comm(), queue.record(), bucketed_->last(), Edge::gradients_reduced);
  if (bench_.planted->replaces_all_reduce(bench_, tensors_, world_, *this)) return;
  const Parameters& p = tensors_.parameters();
  Op op;
  for (std::size_t piece = 0; piece < trees_.size(); ++piece) {
    const Index begin = p.gradient_begin(piece);
    const Index n = bench_.planted->contributes(p.gradient_end(piece) - begin, world_.epoch());
    op = world_.comm().all_reduce(queue, bench_.op(OpKind::all_reduce, Phase::grad_reduce, "gradients", SEEKSIM_SITE),
                                  ownership(), trees_[piece].parts(), bench_.scale.at_root * average().after,
                                  tensors_.sums(begin, n));
  }
  bench_.host_after(world_.comm(), queue.record(), op, Edge::gradients_reduced);
  bench_.planted->all_reduced(bench_, tensors_);
}

// The same, run by run.
void Reduction::all_reduce_divided() {
  Queue& queue = bench_.rank.device.communication_queue();
  Op op;
  for (const GradientSplit::Run& run : split_->runs()) {
    const char* const what = run.experts ? "gradients of experts" : "gradients";
    op = world_.comm().all_reduce(queue, bench_.op(OpKind::all_reduce, Phase::grad_reduce, what, SEEKSIM_SITE),
                                  world_.ownership(), roots({run.lo, run.hi, what}), bench_.scale.at_root,
                                  tensors_.sums(run.lo, run.hi - run.lo));
  }
  bench_.host_after(world_.comm(), queue.record(), op, Edge::gradients_reduced);
}

// A tied embedding's other use, by the head.
void Reduction::add_head_use() {
  const Parameters& p = tensors_.parameters();
  if (!p.shares_head() || bench_.plan.bug.mutant == Mutant::tied_gradient_of_one_use) return;
  bench_.compute.phase(Phase::grad_reduce);
  const ParameterInfo& wte = p.wte();
  bench_.compute(
      wte.name, SEEKSIM_SITE, memory_cost(3 * wte.size, 1.0 / 3),
      [twice = bench_.planted->adds_tied_twice()](Lane lane, Vec<float> embedding_use, Vec<const float> head_use) {
        kernels::tree_add(lane, embedding_use, head_use, embedding_use);
        if (twice) kernels::tree_add(lane, embedding_use, head_use, embedding_use);
      },
      tensors_.sums(wte.offset, wte.size), reads(tensors_.sums(p.head_gradient_offset(), wte.size)));
}

// Where the first and the last stage share a parameter: each has the gradient of its own use, and gets the other's.
void Reduction::add_other_stage() {
  Replica* const replica = world_.replica();
  if (replica == nullptr || !replica->shares() || bench_.planted->leaves_tied_apart()) return;
  const std::int64_t step = bench_.progress.step();
  const ParameterInfo& tied = tensors_.parameters().tied_here();
  Launcher launch(bench_.rank.device.communication_queue(), bench_.rank.id);
  launch.at(world_.epoch(), step);
  launch.phase(Phase::grad_reduce);
  const ShardKeeper* const keeper = tensors_.keeper();
  if (keeper == nullptr) {
    const Op op = replica->add_tied(launch, step, tensors_.sums(tied.offset, tied.size), 0);
    bench_.host_after(world_.comm(), launch.queue().record(), op, Edge::tied_received);
    return;
  }
  const ShardState& own = keeper->own();
  const ShardInfo mine = keeper->partition().shard_in(world_.shards().position(), tied.offset, tied.offset + tied.size);
  const Replica::AtHome home{reducer_->copies(), reducer_->at_home(), reducer_->home()};
  replica->add_tied(launch, step, own.sums.part(mine.offset - own.shard.offset, mine.size), mine.offset - tied.offset,
                    reducer_->offloaded() ? &home : nullptr);
}

// In units of the gradient itself, so that what is left out means the same after the loss scale has moved; what is
// summed is scaled again. loss: as in reduce_to_owners().
void Reduction::reduce_compressed(VecView<float> loss) {
  const Parameters& p = tensors_.parameters();
  ShardKeeper* const keeper = tensors_.keeper();
  Communicator& comm = world_.comm();
  const double scale = bench_.progress.scaler().scale();
  const float mean = bench_.scale.at_root * average().after;
  const CompressedReduction::Factors factors{mean * unscale_factor(scale), static_cast<float>(scale), mean};
  Queue& queue = bench_.rank.device.communication_queue();
  const std::vector<VecView<const float>> groups = trees_.front().parts();
  const std::int64_t step = bench_.progress.step();
  if (keeper != nullptr) {
    keeper->prepare_step();
    const bool last = keeper->partition().is_last(comm.position());
    const Op op = compressed_->reduce(step, groups, factors, {}, keeper->own().sums, last ? loss : VecView<float>{});
    keeper->hold_gradients(reducer_->launcher());
    bench_.host_after(comm, queue.record(), op, Edge::shard_reduced);
    if (keeper->keeps_copies()) keeper->send_gradients(comm, step);
    return;
  }
  std::vector<ShardInfo> shards;
  for (int member = 0; member < comm.size(); ++member) shards.push_back(partition_->shard(member));
  const ShardInfo mine = shards[std::size_t(comm.position())];
  const VecView<float> own = tensors_.sums(mine.offset, mine.size), loss_here = tensors_.sums(p.loss_offset(), 1);
  if (bench_.definition().compression.of_momentum()) {
    compressed_->reduce(step, groups, {factors.before, 1, mean}, momentum(), own, loss_here);
    const Op op = compressed_->send_back(step, tensors_.sums(0, p.trainable_size()), static_cast<float>(scale));
    return bench_.host_after(comm, queue.record(), op, Edge::gradients_reduced);
  }
  compressed_->reduce(step, groups, factors, {}, own, loss_here);
  const Op op = comm.all_gather(queue, bench_.op(OpKind::all_gather, Phase::grad_reduce, "gradients", SEEKSIM_SITE),
                                tensors_.sums(0, p.trainable_size()), shards);
  bench_.host_after(comm, queue.record(), op, Edge::gradients_reduced);
  hold_rounded();
}

// Shares of all groups make up beta1 times the momentum.
CompressedReduction::Momentum Reduction::momentum() const {
  const Definition& d = bench_.definition();
  const double beta = d.optimizer.betas[0];
  const int shares = bench_.plan.bug.is(Bug::momentum_in_full) ? 1 : d.compression.groups;
  return {reads(tensors_.optimizer().first_moments()), static_cast<float>(beta / shares),
          static_cast<float>(1.0 - beta)};
}

// Each worker's gradient is its own, and nothing is sent.
void Reduction::keep_apart() {
  const Index n = tensors_.parameters().gradient_size();
  const std::vector<VecView<const float>> roots = trees_.front().parts();
  SEEKSIM_CHECK_EQ(Index(roots.size()), tensors_.workers().size());
  bench_.compute.phase(Phase::grad_reduce);
  tensors_.for_each_worker([&](Index worker) {
    bench_.compute(
        "gradients", SEEKSIM_SITE, memory_cost(2 * n),
        [factor = bench_.scale.at_root](Lane lane, Vec<const float> own, Vec<float> sum) {
          const kernels::TreePart all{{0, 0}, own.data};
          kernels::tree_sum(lane, &all, 1, 1, sum, factor);
        },
        roots[std::size_t(worker)], tensors_.sums(0, n));
    add_head_use();
    hold_rounded();
  });
}

// Likewise, as factors of matrices.
void Reduction::reduce_factors() {
  const Parameters& p = tensors_.parameters();
  const double scale = bench_.progress.scaler().scale();
  const float mean = bench_.scale.at_root * average().after;
  const Op op = low_rank_->reduce(bench_.progress.step(), trees_.front().parts(),
                                  {mean * unscale_factor(scale), static_cast<float>(scale), mean},
                                  tensors_.sums(0, p.trainable_size()), tensors_.sums(p.loss_offset(), 1));
  bench_.host_after(world_.comm(), bench_.rank.device.communication_queue().record(), op, Edge::gradients_reduced);
  hold_rounded();
}

CompressionRecord Reduction::compression_record(std::int64_t step) const {
  CompressionRecord record{.step = step, .epoch = world_.epoch()};
  const VecView<const std::int64_t> unconserved = low_rank_ ? low_rank_->unconserved() : compressed_->unconserved();
  if (bench_.has_values()) {
    const kernels::OnHost<std::int64_t> counts = bench_.host_reads(SEEKSIM_SITE, unconserved);
    for (Index i = 0; i < unconserved.n; ++i) record.unconserved += counts[i];
  }
  record.elements = low_rank_ ? low_rank_->elements() : compressed_->elements();
  record.bytes = low_rank_ ? low_rank_->bytes() : compressed_->bytes();
  return record;
}

void Reduction::commit(std::int64_t step, bool applied) {
  if (applied && tensors_.late() != nullptr && bench_.has_values()) tell_late(step);
  if (!compresses_) return;
  bench_.observer.compressed(bench_.rank.id, compression_record(step));
  const PlantedBug& bug = bench_.plan.bug;
  if (applied || bug.is(Bug::residual_of_skipped_step)) tensors_.residuals()->commit();
  if (low_rank_ && (applied || bug.is(Bug::factors_of_skipped_step))) tensors_.factors()->commit();
}

// Which gradients the step has applied. The optimizer has counted it already.
void Reduction::tell_late(std::int64_t step) {
  const LateGradients& late = *tensors_.late();
  for (Index worker = 0; worker < late.workers().size(); ++worker) {
    LateRecord record{step, world_.epoch(), late.workers().begin + worker, tensors_.optimizer_steps() - 1, {}};
    const kernels::OnHost<std::int64_t> came = bench_.host_reads(SEEKSIM_SITE, late.came(worker));
    for (Index i = 0; i < late.came(worker).n; ++i) record.made.push_back(came[i]);
    bench_.observer.late(bench_.rank.id, record);
  }
}

void Reduction::hold_rounded() {
  if (!tensors_.rounds_gradients()) return;
  bench_.compute.phase(Phase::grad_reduce);
  round_values(bench_.compute, "gradients", SEEKSIM_SITE,
               reads(tensors_.sums(0, tensors_.parameters().trainable_size())), tensors_.flat_gradients());
}

// What is left of it: where gradients are sharded their buckets have been under way since backward.
void Reduction::reduce_to_owners(VecView<float> loss) {
  ShardKeeper& keeper = *tensors_.keeper();
  keeper.prepare_step();
  Queue& queue = reducer_->launcher().queue();
  if (!bench_.shards_gradients()) {
    reducer_->begin_reduction(0, 0);
    std::vector<Bucket> buckets = reducer_->buckets();
    bench_.planted->order(buckets, world_.epoch());
    for (const Bucket& bucket : buckets) reducer_->reduce(bucket, roots(bucket));
    reducer_->end_reduction();
  }
  reducer_->finish(loss);
  add_other_stage();
  keeper.hold_gradients(reducer_->at_home());
  Communicator& last = world_.replicas() != nullptr ? *world_.replicas() : world_.comm();
  bench_.host_after(last, queue.record(), reducer_->last_op(), Edge::shard_reduced);
  // The copy of this shard's state must be able to take this step before anybody knows that it is committed. That it is
  // there shows when the norms are, which come after it on the same queue.
  if (keeper.keeps_copies()) keeper.send_gradients(world_.shards(), bench_.progress.step());
}

}  // namespace seeksim::runtime
