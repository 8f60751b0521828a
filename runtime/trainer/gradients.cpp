// A step's gradients between backward and the vote: brought together, measured, read by the host. Two ways, by
// placement: the sum on every rank and everything measured there, or each shard at its owner, who tells the others only
// its norms.
#include <algorithm>

#include "kernels/norms.h"
#include "kernels/pointwise.h"
#include "kernels/tree.h"
#include "runtime/launch/typed_ops.h"
#include "runtime/rules/host_math.h"
#include "runtime/trainer/trainer.h"

namespace seeksim::runtime {

using kernels::kBlock;
using kernels::kSlabs;
using kernels::Lane;
using kernels::Vec;

void Trainer::reduce_gradients() {
  if (!sharded(placement_.gradients)) {
    for (GradientTree& tree : trees_) tree.scale(compute_, average().before);
    // By the host, so that an operation counts as joined when its data is there.
    host_after(*comm_, compute_.queue().record(), compute_.last(), Edge::backward_done, plan_.bug);
  }
  if (!sharded(placement_.optimizer)) {
    reduce_everywhere();
    add_tied_gradients();
    add_gradients_of_other_stage();
    hold_gradients();
  } else {
    reduce_to_owners();
  }
}

// What is left of it: where gradients are sharded their buckets have been under way since backward.
void Trainer::reduce_to_owners() {
  keeper_->prepare_step();
  Queue& queue = reducer_->launcher().queue();
  if (!sharded(placement_.gradients)) {
    reducer_->begin_reduction(0);
    for (const Bucket& bucket : planted_order(reducer_->buckets())) {
      const std::size_t piece = parameters_.piece_of(bucket.lo);
      const Index begin = parameters_.gradient_begin(piece);
      std::vector<VecView<const float>> parts;
      for (const VecView<const float>& node : trees_[piece].parts())
        parts.push_back(node.part(bucket.lo - begin, bucket.hi - bucket.lo));
      reducer_->reduce(bucket, parts);
    }
    reducer_->end_reduction();
  }
  const Index blocks = keeper_->partition().norm_blocks();
  reducer_->finish(vec<float>(offloads() ? *home_norms_ : *norm_blocks_, blocks, 1));
  add_gradients_of_other_stage();
  keeper_->hold_gradients(reducer_->at_home());
  host_after(*comm_, queue.record(), reducer_->last_op(), Edge::shard_reduced, plan_.bug);
  // The copy of this shard's state must be able to take this step before anybody knows that it is committed. That it is
  // there shows when the norms are, which come after it on the same queue.
  if (keeper_->keeps_copies()) keeper_->send_gradients(*comm_, step_);
}

// The buckets in the order in which this rank reduces them: as they are, unless a bug is planted.
std::vector<Bucket> Trainer::planted_order(std::vector<Bucket> buckets) const {
  if (plants(Bug::skipped_collective)) buckets.erase(buckets.begin());
  if (!plants(Bug::swapped_buckets)) return buckets;
  for (std::size_t i = 0; i < buckets.size(); ++i) {
    for (std::size_t j = i + 1; j < buckets.size(); ++j) {
      if (buckets[i].hi - buckets[i].lo != buckets[j].hi - buckets[j].lo) continue;
      std::swap(buckets[i], buckets[j]);
      return buckets;
    }
  }
  return buckets;
}

void Trainer::reduce_everywhere() {
  if (plants(Bug::skipped_collective)) return;
  if (plan_.bug.is(Bug::never_reduced)) return reduce_alone();
  Queue& queue = rank_.device.communication_queue();
  Op op;
  for (std::size_t piece = 0; piece < trees_.size(); ++piece) {
    const Index begin = parameters_.gradient_begin(piece), end = parameters_.gradient_end(piece);
    const Index n = end - begin - (plants(Bug::wrong_count) ? 1 : 0);
    op = {};
    op.phase = Phase::grad_reduce;
    op.step = step_;
    op.tensor = "gradients";
    op.site = SEEKSIM_SITE;
    const std::vector<VecView<const float>> parts = trees_[piece].parts();
    op =
        comm_->all_reduce(queue, op, ownership_, parts, scale_.at_root * average().after, vec<float>(*sums_, begin, n));
  }
  host_after(*comm_, queue.record(), op, Edge::gradients_reduced, plan_.bug);
  if (plan_.bug.is(Bug::gradients_never_zeroed)) add_old_gradients();
}

// Where the first and the last stage share a parameter: each has the gradient of its own use, and gets the other's.
void Trainer::add_gradients_of_other_stage() {
  if (!replica_ || !replica_->shares() || plan_.bug.is(Bug::untied_embedding)) return;
  const ParameterInfo& tied = parameters_.tied_here();
  Launcher launch(rank_.device.communication_queue(), rank_.id);
  launch.at(comm_->epoch(), step_);
  launch.phase(Phase::grad_reduce);
  if (!keeper_) {
    const Op op = replica_->add_tied(launch, step_, vec<float>(*sums_, tied.offset, tied.size), 0);
    host_after(*comm_, launch.queue().record(), op, Edge::tied_received, plan_.bug);
    return;
  }
  const ShardState& own = keeper_->own();
  const ShardInfo mine = keeper_->partition().shard_in(comm_->position(), tied.offset, tied.offset + tied.size);
  replica_->add_tied(launch, step_, own.sums.part(mine.offset - own.shard.offset, mine.size),
                     mine.offset - tied.offset);
}

void Trainer::add_tied_gradients() {
  if (!parameters_.shares_head()) return;
  compute_.phase(Phase::grad_reduce);
  const ParameterInfo& wte = parameters_.wte();
  compute_(
      wte.name, SEEKSIM_SITE, memory_cost(3 * wte.size, 1.0 / 3),
      [twice = plan_.bug.is(Bug::tied_added_twice)](Lane lane, Vec<float> embedding_use, Vec<const float> head_use) {
        kernels::tree_add(lane, embedding_use, head_use, embedding_use);
        if (twice) kernels::tree_add(lane, embedding_use, head_use, embedding_use);
      },
      vector_of<float>(*sums_, wte), vec<const float>(*sums_, parameters_.head_gradient_offset(), wte.size));
}

// Rounded once, at the root, where gradients are held in 16 bits (NUMERICS.md, R4).
void Trainer::hold_gradients() {
  if (!gradients_) return;
  compute_.phase(Phase::grad_reduce);
  round_values(compute_, "gradients", SEEKSIM_SITE, vec<const float>(*sums_, 0, parameters_.trainable_size()),
               flat_gradients());
}

namespace {

void count_nonfinite(Launcher& launch, AnyVec gradients, VecView<std::int64_t> count) {
  with_float_type(gradients.type, [&](auto like) {
    using G = decltype(like);
    launch(
        "gradients", SEEKSIM_SITE, memory_cost(gradients.n),
        [](Lane lane, Vec<const G> x, Vec<std::int64_t> n) {
          kernels::clear(lane, n);
          kernels::count_nonfinite<G>(lane, x, n);
        },
        gradients.as<const G>(), count);
  });
}

// norm^2 of the blocks of consecutive elements of a parameter, of which x[0] is number `first`: blocks restart at
// slabs.
template <class G>
void norm2_of_blocks(Lane lane, Vec<const G> x, Index first, Index slab, Vec<float> norms) {
  Index done = 0;
  for (Index i = 0; i < x.n;) {
    const Index size = std::min(slab - (first + i) % slab, x.n - i), blocks = (size + kBlock - 1) / kBlock;
    kernels::norm2_blocks<G>(lane, {x.data + i, size}, {norms.data + done, blocks});
    i += size;
    done += blocks;
  }
}

}  // namespace

// The count of non-finite values, and norm^2 by the tree: blocks inside slabs, slabs, parameters in their order.
void Trainer::measure_gradients() {
  compute_.phase(Phase::grad_reduce);
  at_home().phase(Phase::grad_reduce);
  if (keeper_) return measure_shard();
  const Index count = Index(parameters_.trainable().size());
  const AnyVec gradients = flat_gradients();
  count_nonfinite(compute_, gradients, vec<std::int64_t>(*nonfinite_));
  for (Index i = 0; i < count; ++i) {
    const ParameterInfo& p = *parameters_.trainable()[i];
    with_float_type(gradients.type, [&](auto like) {
      using G = decltype(like);
      compute_(
          p.name, SEEKSIM_SITE, memory_cost(p.size, 2),
          [slab = p.slab](Lane lane, Vec<const G> x, Vec<float> blocks, Vec<float> norm) {
            kernels::norm2_of_slabs<G>(lane, x, slab, blocks, norm);
          },
          gradients.part(p.offset, p.size).as<const G>(), vec<float>(*norm_blocks_), norm_of(i));
    });
  }
  fold_parameters();
}

// Of all parameters from each one's; where the model is on several ranks, that is done when all have brought theirs.
void Trainer::fold_parameters() {
  const Index count = Index(parameters_.trainable().size());
  if (replica_) {
    copy_values(compute_, "loss", SEEKSIM_SITE, loss_value(), replica_->own_norms().part(count, 1));
    return;
  }
  compute_(
      "gradients", SEEKSIM_SITE, memory_cost(count),
      [](Lane lane, Vec<const float> of_parameters, Vec<float> norm) { kernels::tree_fold(lane, of_parameters, norm); },
      vec<const float>(*norms_, 0, count), vec<float>(*norms_, count, 1));
}

VecView<float> Trainer::norm_of(Index trainable) {
  return replica_ ? replica_->own_norms().part(trainable, 1) : vec<float>(*norms_, trainable, 1);
}

VecView<float> Trainer::loss_value() const {
  return keeper_ ? vec<float>(*norm_blocks_, keeper_->partition().norm_blocks(), 1)
                 : vec<float>(*sums_, parameters_.loss_offset(), 1);
}

// The same by owners: everybody counts and squares the blocks of its own shard, then all blocks' norms and the loss go
// to all, who fold them alike.
void Trainer::measure_shard() {
  const Partition& partition = keeper_->partition();
  const ShardState& own = keeper_->own();
  Launcher& launch = at_home();
  Buffer& squares = offloads() ? *home_norms_ : *norm_blocks_;
  count_nonfinite(launch, own.gradients, vec<std::int64_t>(*nonfinite_));
  Index at = 0, block = partition.norm_blocks_before(own.shard.offset);
  for (const ParameterPiece& piece : partition.pieces(own.shard)) {
    const Index end = partition.norm_blocks_before(piece.offset() + piece.size);
    with_float_type(own.gradients.type, [&](auto like) {
      using G = decltype(like);
      launch(
          piece.parameter->name, SEEKSIM_SITE, memory_cost(piece.size, 2),
          [slab = piece.parameter->slab, first = piece.first](Lane lane, Vec<const G> x, Vec<float> norms) {
            norm2_of_blocks<G>(lane, x, first, slab, norms);
          },
          own.gradients.part(at, piece.size).as<const G>(), vec<float>(squares, block, end - block));
    });
    if (offloads() && at == 0 && plan_.bug.is(Bug::offload_norm_leaves_one_out, rank_.id))
      clear_values(launch, "norms", SEEKSIM_SITE, AnyVec(vec<float>(squares, block, end - block)));
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
  if (plants(Bug::norm_left_out_by_one)) return fold_norms();
  if (offloads()) bring_norms(shares[std::size_t(comm_->position())]);
  Queue& measured = offloads() ? rank_.device.copy_queue() : compute_.queue();
  after(queue, measured.record(), Edge::norms_measured, plan_.bug);
  op = comm_->all_gather(queue, op, vec<float>(*norm_blocks_, 0, partition.norm_blocks() + 1), shares);
  host_after(*comm_, queue.record(), op, Edge::norms_gathered, plan_.bug);
  fold_norms();
}

// From the host to where they can be sent.
void Trainer::bring_norms(const ShardInfo& share) {
  Launcher copies(rank_.device.copy_queue(), rank_.id, 0, OpKind::copy);
  copies.at(comm_->epoch(), step_);
  copies.phase(Phase::grad_reduce);
  after(copies.queue(), host_.queue().record(), Edge::norms_at_home, plan_.bug);
  copy_values(copies, "norms", SEEKSIM_SITE, vec<float>(*home_norms_, share.offset, share.size),
              vec<float>(*norm_blocks_, share.offset, share.size));
}

void Trainer::fold_norms() {
  if (plan_.bug.is(Bug::local_norm)) forget_others_norms();
  const Partition& partition = keeper_->partition();
  const Index count = Index(parameters_.trainable().size());
  for (Index i = 0; i < count; ++i) {
    const ParameterInfo& p = *parameters_.trainable()[i];
    const Index first = partition.first_norm_block(i), blocks = partition.first_norm_block(i + 1) - first;
    compute_(
        p.name, SEEKSIM_SITE, memory_cost(blocks),
        [of_slab = (p.slab + kBlock - 1) / kBlock](Lane lane, Vec<const float> squares, Vec<float> norm) {
          kernels::tree_fold(lane, squares, norm, 1.0f, of_slab);
        },
        vec<const float>(*norm_blocks_, first, blocks), norm_of(i));
  }
  fold_parameters();
}

namespace {

// Unscaled, as the host hands them out.
void append_unscaled(AnyVec held, float factor, std::vector<float>& out) {
  const std::size_t at = out.size();
  out.resize(at + std::size_t(held.n));
  widen_to(held, out.data() + at);
  if (factor != 1.0f) kernels::scale(Lane{}, {out.data() + at, held.n}, factor);
}

}  // namespace

// For the observer, who wants them all.
void Trainer::gather_gradients() {
  handed_out_.clear();
  for_each_gathered(keeper_ ? keeper_->own().gradients : flat_gradients(), nullptr, "gradients",
                    [this](const ParameterInfo&, AnyVec values) {
                      append_unscaled(values, unscale_factor(scaler_.scale()), handed_out_);
                    });
}

std::vector<float> Trainer::replicated_gradients() const {
  std::vector<float> values;
  append_unscaled(flat_gradients(), unscale_factor(scaler_.scale()), values);
  return values;
}

// Of what is held, by the tree; or as a quirk adds it up, from the norms of the pieces of all members' shards.
float Trainer::gradient_norm() const {
  if (!plan_.definition.quirks.has(Quirk::ds_partition_norm) || !keeper_) {
    const Index count = Index(parameters_.trainable().size());
    return host_sqrt(host_value(SEEKSIM_SITE, vec<const float>(*norms_, count, 1)));
  }
  const Partition& partition = keeper_->partition();
  const kernels::OnHost<float> blocks =
      host_reads(SEEKSIM_SITE, vec<const float>(*norm_blocks_, 0, partition.norm_blocks()));
  std::vector<std::vector<double>> norms;
  for (int member = 0; member < comm_->size(); ++member) {
    std::vector<double>& of_member = norms.emplace_back();
    Index at = partition.norm_blocks_before(partition.shard(member).offset);
    for (const ParameterPiece& piece : partition.pieces(partition.shard(member))) {
      double squares = 0;
      for (const Index end = partition.norm_blocks_before(piece.offset() + piece.size); at < end; ++at)
        squares += double(blocks[at]);
      of_member.push_back(host_sqrt(squares));
    }
  }
  return partition_norm(norms);
}

Trainer::StepResult Trainer::read_result() {
  StepResult result;
  float norm = 0;
  if (replica_) {
    const Replica::Sum all = replica_->gather_norms(compute_, has_values());
    result.loss = all.loss;
    norm = host_sqrt(all.norm2);
  }
  host_after(*comm_, compute_.queue().record(), compute_.last(), Edge::step_measured, plan_.bug);
  if (!replica_) {
    result.loss = host_value(SEEKSIM_SITE, VecView<const float>(reads(loss_value())));
    norm = gradient_norm();
  }
  // Of what is held, and so of what the loss scale multiplied.
  result.grad_norm = norm * unscale_factor(scaler_.scale());
  result.nonfinite = host_value(SEEKSIM_SITE, vec<const std::int64_t>(*nonfinite_));
  // A norm beyond fp32 cannot be clipped to anything sensible; DeepSpeed calls that an overflow too. A loss that is not
  // finite makes a step nobody wants, whatever its gradients are.
  result.finite = result.nonfinite == 0 && host_finite(result.grad_norm) && host_finite(result.loss);
  if (provenance_) tell_what_was_seen();
  return result;
}

void Trainer::tell_what_was_seen() {
  const Op op = compute_.last();
  if (const std::optional<NonFiniteBirth> birth = provenance_->first(op))
    observer_.nonfinite_born(rank_.id, step_, *birth);
  if (std::vector<RangeLogEntry> log = provenance_->logged(op); !log.empty())
    observer_.ranges(rank_.id, step_, std::move(log), provenance_->dropped());
}

}  // namespace seeksim::runtime
