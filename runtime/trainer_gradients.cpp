// A step's gradients between backward and the vote: brought together, measured, read by the host. Two ways, by
// placement: the sum on every rank and everything measured there, or each shard at its owner, who tells the others only
// its norms.
#include <algorithm>

#include "kernels/norms.h"
#include "kernels/tree.h"
#include "runtime/host_math.h"
#include "runtime/trainer.h"

namespace seeksim::runtime {

using kernels::kBlock;
using kernels::kSlabs;
using kernels::Lane;
using kernels::Vec;

void Trainer::reduce_gradients() {
  if (!sharded(placement_.gradients)) {
    // By the host, so that an operation counts as joined when its data is there.
    host_after(*comm_, compute_.queue().record(), compute_.last(), Edge::backward_done, plan_.bug);
  }
  if (!sharded(placement_.optimizer)) {
    reduce_everywhere();
    add_tied_gradients();
  } else {
    reduce_to_owners();
  }
}

// What is left of it: where gradients are sharded their buckets have been under way since backward.
void Trainer::reduce_to_owners() {
  Queue& queue = reducer_->launcher().queue();
  if (!sharded(placement_.gradients)) {
    reducer_->begin_reduction(0);
    const std::vector<VecView<const float>> nodes = tree_->parts();
    for (const Bucket& bucket : reducer_->buckets()) {
      std::vector<VecView<const float>> parts;
      for (const VecView<const float>& node : nodes) parts.push_back(node.part(bucket.lo, bucket.hi - bucket.lo));
      reducer_->reduce(bucket, parts);
    }
    reducer_->end_reduction();
  }
  const Index blocks = keeper_->partition().norm_blocks();
  reducer_->finish(vec<float>(*norm_blocks_, blocks, 1));
  host_after(*comm_, queue.record(), reducer_->last_op(), Edge::shard_reduced, plan_.bug);
  // The copy of this shard's state must be able to take this step before anybody knows that it is committed. That it is
  // there shows when the norms are, which come after it on the same queue.
  if (keeper_->keeps_copies()) keeper_->send_gradients(*comm_, queue, step_);
}

void Trainer::reduce_everywhere() {
  Op op;
  op.phase = Phase::grad_reduce;
  op.step = step_;
  op.tensor = "gradients";
  op.site = SEEKSIM_SITE;
  Queue& queue = rank_.device.communication_queue();
  const std::vector<VecView<const float>> parts = tree_->parts();
  op = comm_->all_reduce(queue, op, ownership_, parts, scale_.at_root,
                         vec<float>(*gradients_, 0, parameters_.gradient_size()));
  host_after(*comm_, queue.record(), op, Edge::gradients_reduced, plan_.bug);
}

void Trainer::add_tied_gradients() {
  if (!parameters_.shares_head()) return;
  compute_.phase(Phase::grad_reduce);
  const ParameterInfo& wte = parameters_.wte();
  compute_(
      wte.name, SEEKSIM_SITE, memory_cost(3 * wte.size, 1.0 / 3),
      [](Lane lane, Vec<float> embedding_use, Vec<const float> head_use) {
        kernels::tree_add(lane, embedding_use, head_use, embedding_use);
      },
      vector_of<float>(*gradients_, wte), vec<const float>(*gradients_, parameters_.head_gradient_offset(), wte.size));
}

// The count of non-finite values, and norm^2 by the tree: blocks inside slabs, slabs, parameters in their order.
void Trainer::measure_gradients() {
  compute_.phase(Phase::grad_reduce);
  if (keeper_) return measure_shard();
  const Index count = Index(parameters_.trainable().size());
  compute_(
      "gradients", SEEKSIM_SITE, memory_cost(parameters_.trainable_size()),
      [](Lane lane, Vec<const float> x, Vec<std::int64_t> n) {
        n[0] = 0;
        kernels::count_nonfinite(lane, x, n);
      },
      vec<const float>(*gradients_, 0, parameters_.trainable_size()), vec<std::int64_t>(*nonfinite_));
  for (Index i = 0; i < count; ++i) {
    const ParameterInfo& p = *parameters_.trainable()[i];
    compute_(
        p.name, SEEKSIM_SITE, memory_cost(p.size, 2),
        [slab = p.slab](Lane lane, Vec<const float> x, Vec<float> blocks, Vec<float> norm) {
          float slabs[kSlabs];
          Index n = 0;
          for (Index at = 0; at < x.n; at += slab, ++n) {
            const Index size = std::min(slab, x.n - at);
            const Vec<float> of_slab{blocks.data, (size + kBlock - 1) / kBlock};
            kernels::norm2_blocks(lane, {x.data + at, size}, of_slab);
            slabs[n] = kernels::tree_fold(of_slab);
          }
          norm[0] = kernels::tree_fold({slabs, n});
        },
        vector_of<const float>(*gradients_, p), vec<float>(*norm_blocks_), vec<float>(*norms_, i, 1));
  }
  compute_(
      "gradients", SEEKSIM_SITE, memory_cost(count),
      [](Lane, Vec<const float> of_parameters, Vec<float> norm) { norm[0] = kernels::tree_fold(of_parameters); },
      vec<const float>(*norms_, 0, count), vec<float>(*norms_, count, 1));
}

// The same by owners: everybody counts and squares the blocks of its own shard, then all blocks' norms and the loss go
// to all, who fold them alike.
void Trainer::measure_shard() {
  const Partition& partition = keeper_->partition();
  const ShardState& own = keeper_->own();
  compute_(
      "gradients", SEEKSIM_SITE, memory_cost(own.shard.size),
      [](Lane lane, Vec<const float> x, Vec<std::int64_t> n) {
        n[0] = 0;
        kernels::count_nonfinite(lane, x, n);
      },
      reads(own.gradients), vec<std::int64_t>(*nonfinite_));
  Index at = 0, block = partition.norm_blocks_before(own.shard.offset);
  for (const ParameterPiece& piece : partition.pieces(own.shard)) {
    const Index end = partition.norm_blocks_before(piece.offset() + piece.size);
    compute_(
        piece.parameter->name, SEEKSIM_SITE, memory_cost(piece.size, 2),
        [slab = piece.parameter->slab, first = piece.first](Lane lane, Vec<const float> x, Vec<float> norms) {
          Index done = 0;
          for (Index i = 0; i < x.n;) {
            const Index size = std::min(slab - (first + i) % slab, x.n - i), blocks = (size + kBlock - 1) / kBlock;
            kernels::norm2_blocks(lane, {x.data + i, size}, {norms.data + done, blocks});
            i += size;
            done += blocks;
          }
        },
        reads(own.gradients.part(at, piece.size)), vec<float>(*norm_blocks_, block, end - block));
    at += piece.size;
    block = end;
  }
  std::vector<ShardInfo> shares;
  for (int member = 0; member < comm_->size(); ++member) {
    const ShardInfo shard = partition.shard(member);
    const Index first = partition.norm_blocks_before(shard.offset);
    const Index loss = partition.is_last(member) ? 1 : 0;
    shares.push_back({first, partition.norm_blocks_before(shard.offset + shard.size) + loss - first});
  }
  Op op;
  op.phase = Phase::grad_reduce;
  op.step = step_;
  op.tensor = "norms";
  op.site = SEEKSIM_SITE;
  Queue& queue = rank_.device.communication_queue();
  after(queue, compute_.queue().record(), Edge::norms_measured, plan_.bug);
  op = comm_->all_gather(queue, op, vec<float>(*norm_blocks_, 0, partition.norm_blocks() + 1), shares);
  host_after(*comm_, queue.record(), op, Edge::norms_gathered, plan_.bug);
  fold_norms();
}

void Trainer::fold_norms() {
  const Partition& partition = keeper_->partition();
  const Index count = Index(parameters_.trainable().size());
  for (Index i = 0; i < count; ++i) {
    const ParameterInfo& p = *parameters_.trainable()[i];
    const Index first = partition.first_norm_block(i), blocks = partition.first_norm_block(i + 1) - first;
    compute_(
        p.name, SEEKSIM_SITE, memory_cost(blocks),
        [of_slab = (p.slab + kBlock - 1) / kBlock](Lane, Vec<const float> squares, Vec<float> norm) {
          float slabs[kSlabs];
          Index n = 0;
          for (Index at = 0; at < squares.n; at += of_slab) {
            slabs[n++] = kernels::tree_fold({squares.data + at, std::min(of_slab, squares.n - at)});
          }
          norm[0] = kernels::tree_fold({slabs, n});
        },
        vec<const float>(*norm_blocks_, first, blocks), vec<float>(*norms_, i, 1));
  }
  compute_(
      "gradients", SEEKSIM_SITE, memory_cost(count),
      [](Lane, Vec<const float> of_parameters, Vec<float> norm) { norm[0] = kernels::tree_fold(of_parameters); },
      vec<const float>(*norms_, 0, count), vec<float>(*norms_, count, 1));
}

// For the observer, who wants them all.
void Trainer::gather_gradients() {
  handed_out_.clear();
  for_each_gathered(keeper_->own().gradients, nullptr, "gradients",
                    [this](const ParameterInfo&, std::span<const float> values) {
                      handed_out_.insert(handed_out_.end(), values.begin(), values.end());
                    });
}

Trainer::StepResult Trainer::read_result() {
  host_after(*comm_, compute_.queue().record(), compute_.last(), Edge::step_measured, plan_.bug);
  const Index count = Index(parameters_.trainable().size());
  StepResult result;
  const VecView<const float> loss = keeper_ ? vec<const float>(*norm_blocks_, keeper_->partition().norm_blocks(), 1)
                                            : vec<const float>(*gradients_, parameters_.loss_offset(), 1);
  result.loss = host_reads(SEEKSIM_SITE, loss)[0];
  result.grad_norm = host_sqrt(host_reads(SEEKSIM_SITE, vec<const float>(*norms_, count, 1))[0]);
  const VecView<const std::int64_t> nonfinite = vec<const std::int64_t>(*nonfinite_);
  host_touches(SEEKSIM_SITE, nonfinite.range());
  // A norm beyond fp32 cannot be clipped to anything sensible; DeepSpeed calls that an overflow too.
  result.finite = nonfinite.get()[0] == 0 && host_finite(result.grad_norm);
  return result;
}

}  // namespace seeksim::runtime
