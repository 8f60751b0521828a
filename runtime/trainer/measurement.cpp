#include "runtime/trainer/measurement.h"

#include <algorithm>
#include <bit>

#include "kernels/check.h"
#include "kernels/norms.h"
#include "kernels/pointwise.h"
#include "kernels/tree.h"
#include "runtime/rules/host_math.h"
#include "runtime/rules/mutants.h"
#include "runtime/seams/edges.h"

namespace seeksim::runtime {

using kernels::kBlock;
using kernels::Lane;
using kernels::Vec;

void Measurement::allocate() {
  Device& device = bench_.rank.device;
  const Parameters& p = tensors_.parameters();
  Index blocks = 0;
  for (const ParameterInfo* one : p.trainable()) blocks = std::max(blocks, (one->slab + kBlock - 1) / kBlock);
  if (bench_.shards_optimizer()) blocks = Partition(p, 1).norm_blocks() + 1;
  const std::size_t bytes = std::size_t(blocks) * sizeof(float);
  const Space home = bench_.plan.layout.offload.optimizer.space();
  norm_blocks_ = device.allocate(bytes, MemoryTag::scratch, "norm blocks");
  const std::size_t workers = std::size_t(tensors_.workers().size());
  norms_begin_ = {0};
  for (const ParameterInfo* one : p.trainable())
    norms_begin_.push_back(norms_begin_.back() + p.part().norm_parts(*one));
  norms_ = device.allocate(workers * std::size_t(norms_begin_.back() + 1) * sizeof(float), MemoryTag::scratch, "norms");
  nonfinite_ = device.allocate_in(home, workers * sizeof(std::int64_t), MemoryTag::scratch, "non-finite count");
  SEEKSIM_CHECK((nonfinite_->data != nullptr) == bench_.has_values(),
                "a run of shapes and a device with values, or the reverse");
  if (bench_.offloads()) home_norms_ = device.allocate_in(home, bytes, MemoryTag::scratch, "norm blocks");
}

VecView<float> Measurement::loss_of_owner() const {
  const ShardKeeper* const keeper = tensors_.keeper();
  if (keeper == nullptr) return {};
  return vec<float>(bench_.offloads() ? *home_norms_ : *norm_blocks_, keeper->partition().norm_blocks(), 1);
}

VecView<float> Measurement::loss() const {
  const ShardKeeper* const keeper = tensors_.keeper();
  return keeper != nullptr ? vec<float>(*norm_blocks_, keeper->partition().norm_blocks(), 1)
                           : tensors_.sums(tensors_.parameters().loss_offset(), 1);
}

VecView<float> Measurement::norms_of(Index trainable) const {
  Replica* const replica = world_.replica();
  const Index first = norms_begin_[std::size_t(trainable)], n = norms_begin_[std::size_t(trainable) + 1] - first;
  return replica != nullptr ? replica->own_norms().part(first, n) : norms(first, n);
}

VecView<float> Measurement::norms(Index first, Index count) const {
  const Index each = norms_begin_.back() + 1;
  return vec<float>(*norms_, tensors_.worker() * each + first, count);
}

VecView<std::int64_t> Measurement::nonfinite() const { return vec<std::int64_t>(*nonfinite_, tensors_.worker(), 1); }

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

void Measurement::measure() {
  bench_.compute.phase(Phase::grad_reduce);
  bench_.at_home().phase(Phase::grad_reduce);
  if (tensors_.keeper() == nullptr) return tensors_.for_each_worker([this](Index) { measure_all(); });
  measure_shard();
  if (bench_.planted->leaves_out_norms(world_.epoch(), tensors_.keeper()->own().shard.size)) return fold_norms();
  gather_norms();
  fold_norms();
}

void Measurement::measure_all() {
  const Parameters& parameters = tensors_.parameters();
  const AnyVec gradients = tensors_.flat_gradients();
  count_nonfinite(bench_.compute, gradients, nonfinite());
  for (Index i = 0; i < Index(parameters.trainable().size()); ++i) {
    const ParameterInfo& p = *parameters.trainable()[std::size_t(i)];
    const VecView<float> norms = norms_of(i);
    const Index each = p.size / norms.n;
    for (Index part = 0; part < norms.n; ++part) {
      with_float_type(gradients.type, [&](auto like) {
        using G = decltype(like);
        bench_.compute(
            p.name, SEEKSIM_SITE, memory_cost(each, 2),
            [slab = p.slab](Lane lane, Vec<const G> x, Vec<float> blocks, Vec<float> norm) {
              kernels::norm2_of_slabs<G>(lane, x, slab, blocks, norm);
            },
            gradients.part(p.offset + part * each, each).as<const G>(), vec<float>(*norm_blocks_), norms.part(part, 1));
      });
    }
  }
  fold_parameters();
}

// The same by owners: each counts, and squares the blocks of its own shard.
void Measurement::measure_shard() {
  const Partition& partition = tensors_.keeper()->partition();
  const ShardState& own = tensors_.keeper()->own();
  Launcher& launch = bench_.at_home();
  Buffer& squares = bench_.offloads() ? *home_norms_ : *norm_blocks_;
  count_nonfinite(launch, own.gradients, nonfinite());
  Index at = 0, block = partition.norm_blocks_before(own.shard.offset);
  for (const ParameterPiece& piece : partition.pieces(own.shard)) {
    const Index end = partition.norm_blocks_before(piece.offset() + piece.size);
    const VecView<float> norms = vec<float>(squares, block, end - block);
    with_float_type(own.gradients.type, [&](auto like) {
      using G = decltype(like);
      launch(
          piece.parameter->name, SEEKSIM_SITE, memory_cost(piece.size, 2),
          [slab = piece.parameter->slab, first = piece.first](Lane lane, Vec<const G> x, Vec<float> out) {
            norm2_of_blocks<G>(lane, x, first, slab, out);
          },
          own.gradients.part(at, piece.size).as<const G>(), norms);
    });
    if (bench_.offloads() && at == 0) bench_.planted->first_norms_at_home(launch, norms);
    at += piece.size;
    block = end;
  }
}

// All blocks' norms and the loss, to all.
void Measurement::gather_norms() {
  const Partition& partition = tensors_.keeper()->partition();
  Communicator& comm = world_.shards();
  std::vector<ShardInfo> shares;
  for (int member = 0; member < comm.size(); ++member) {
    const ShardInfo shard = partition.shard(member);
    const Index first = partition.norm_blocks_before(shard.offset);
    const Index loss = partition.is_last(member) ? 1 : 0;
    shares.push_back({first, partition.norm_blocks_before(shard.offset + shard.size) + loss - first});
  }
  Device& device = bench_.rank.device;
  Queue& queue = device.communication_queue();
  if (bench_.offloads()) bring_norms(shares[std::size_t(comm.position())]);
  Queue& measured = bench_.offloads() ? device.copy_queue() : bench_.compute.queue();
  bench_.after(queue, measured.record(), Edge::norms_measured);
  const Op op = comm.all_gather(queue, bench_.op(OpKind::all_gather, Phase::grad_reduce, "norms", SEEKSIM_SITE),
                                vec<float>(*norm_blocks_, 0, partition.norm_blocks() + 1), shares);
  bench_.host_after(comm, queue.record(), op, Edge::norms_gathered);
}

// From the host to where they can be sent.
void Measurement::bring_norms(const ShardInfo& share) {
  Launcher copies(bench_.rank.device.copy_queue(), bench_.rank.id, 0, OpKind::copy);
  copies.at(world_.epoch(), bench_.progress.step());
  copies.phase(Phase::grad_reduce);
  bench_.after(copies.queue(), bench_.host.queue().record(), Edge::norms_at_home);
  copy_values(copies, "norms", SEEKSIM_SITE, vec<float>(*home_norms_, share.offset, share.size),
              vec<float>(*norm_blocks_, share.offset, share.size));
}

void Measurement::fold_norms() {
  const Partition& partition = tensors_.keeper()->partition();
  const Parameters& parameters = tensors_.parameters();
  bench_.planted->folding_norms(bench_.compute, partition, tensors_.keeper()->own().shard,
                                vec<float>(*norm_blocks_, 0, partition.norm_blocks()));
  for (Index i = 0; i < Index(parameters.trainable().size()); ++i) {
    const ParameterInfo& p = *parameters.trainable()[std::size_t(i)];
    const VecView<float> norms = norms_of(i);
    const Index first = partition.first_norm_block(i), blocks = (partition.first_norm_block(i + 1) - first) / norms.n;
    for (Index part = 0; part < norms.n; ++part) {
      bench_.compute(
          p.name, SEEKSIM_SITE, memory_cost(blocks),
          [of_slab = (p.slab + kBlock - 1) / kBlock](Lane lane, Vec<const float> squares, Vec<float> norm) {
            kernels::tree_fold(lane, squares, norm, 1.0f, of_slab);
          },
          vec<const float>(*norm_blocks_, first + part * blocks, blocks), norms.part(part, 1));
    }
  }
  fold_parameters();
}

// Adds the parameters' norms. Where the model is on several ranks, that waits until all have contributed theirs.
void Measurement::fold_parameters() {
  const std::vector<const ParameterInfo*>& trainable = tensors_.parameters().trainable();
  const Index count = Index(trainable.size());
  for (Index i = 0; i < count; ++i) {
    const ParameterInfo& p = *trainable[std::size_t(i)];
    if (!counts_in_norm(bench_.plan.bug.mutant, p.shape.size() > 1, i == 0))
      clear_values(bench_.compute, p.name, SEEKSIM_SITE, AnyVec(norms_of(i)));
  }
  if (Replica* replica = world_.replica()) {
    copy_values(bench_.compute, "loss", SEEKSIM_SITE, loss(), replica->own_norms().part(norms_begin_.back(), 1));
    return;
  }
  bench_.compute(
      "gradients", SEEKSIM_SITE, memory_cost(count),
      [](Lane lane, Vec<const float> of_parameters, Vec<float> norm) { kernels::tree_fold(lane, of_parameters, norm); },
      reads(norms(0, count)), norms(count, 1));
}

// By the tree; or as a quirk adds it up, from the norms of the pieces of all members' shards.
float Measurement::norm() const {
  if (bench_.quirks().has(Quirk::ds_partition_norm) && tensors_.keeper() != nullptr) return partition_norm();
  const Index count = Index(tensors_.parameters().trainable().size());
  return host_sqrt(bench_.host_value(SEEKSIM_SITE, reads(norms(count, 1))));
}

float Measurement::partition_norm() const {
  const Partition& partition = tensors_.keeper()->partition();
  const kernels::OnHost<float> blocks =
      bench_.host_reads(SEEKSIM_SITE, vec<const float>(*norm_blocks_, 0, partition.norm_blocks()));
  std::vector<std::vector<double>> norms;
  for (int member = 0; member < world_.shards().size(); ++member) {
    std::vector<double>& of_member = norms.emplace_back();
    Index at = partition.norm_blocks_before(partition.shard(member).offset);
    for (const ParameterPiece& piece : partition.pieces(partition.shard(member))) {
      double squares = 0;
      for (const Index end = partition.norm_blocks_before(piece.offset() + piece.size); at < end; ++at)
        squares += double(blocks[at]);
      of_member.push_back(host_sqrt(squares));
    }
  }
  return runtime::partition_norm(norms);
}

StepResult Measurement::read() {
  StepResult result;
  here_.clear();
  all_.clear();
  Replica* const replica = world_.replica();
  if (replica != nullptr) {
    const Replica::Sum all = replica->gather_norms(bench_.compute, bench_.has_values());
    here_.push_back({all.loss, host_sqrt(all.norm2)});
  }
  bench_.host_after(world_.comm(), bench_.compute.queue().record(), bench_.compute.last(), Edge::step_measured);
  tensors_.for_each_worker([&](Index) {
    if (replica == nullptr) here_.push_back({bench_.host_value(SEEKSIM_SITE, reads(loss())), norm()});
    result.nonfinite += bench_.host_value(SEEKSIM_SITE, reads(nonfinite()));
  });
  // The norm is that of the gradients as they are held: multiplied by the loss scale.
  const double scale = bench_.progress.scaler().scale();
  for (OfWorker& worker : here_)
    worker.norm = norm_of_step(bench_.plan.bug.mutant, worker.norm * unscale_factor(scale), scale,
                               Index(tensors_.parameters().trainable().size()));
  sum_up(here_, result);
  // A norm beyond fp32 cannot be clipped to anything sensible; DeepSpeed calls that an overflow too. A loss that is not
  // finite makes the step useless, whatever its gradients are.
  result.finite = result.nonfinite == 0 && std::all_of(here_.begin(), here_.end(), [](const OfWorker& worker) {
                    return host_finite(worker.norm) && host_finite(worker.loss);
                  });
  return result;
}

// ---- of workers that train apart -----------------------------------------------------------------------------------

void Measurement::sum_up(const std::vector<OfWorker>& workers, StepResult& result) {
  std::vector<float> losses;
  result.grad_norm = workers.front().norm;
  for (const OfWorker& worker : workers) {
    losses.push_back(worker.loss);
    if (!(worker.norm <= result.grad_norm)) result.grad_norm = worker.norm;
  }
  result.loss = losses.front();
  if (losses.size() == 1) return;
  kernels::tree_fold(Lane{}, {losses.data(), Index(losses.size())}, {&result.loss, 1},
                     static_cast<float>(1.0 / double(losses.size())));
}

void Measurement::tell(Vote about, Ballot& own) {
  if (!apart() || about != Vote::step) return;
  for (const OfWorker& worker : here_)
    own.told.push_back(std::int64_t(std::bit_cast<std::uint32_t>(worker.loss)) << 32 |
                       std::int64_t(std::bit_cast<std::uint32_t>(worker.norm)));
}

// Members stand in the order of the data axis, and so in that of their workers.
void Measurement::hear(Vote about, const Agreement& agreement, bool) {
  if (!apart() || about != Vote::step) return;
  all_.clear();
  for (const Ballot& ballot : agreement.ballots) {
    for (const std::int64_t told : ballot.told)
      all_.push_back({std::bit_cast<float>(std::uint32_t(std::uint64_t(told) >> 32)),
                      std::bit_cast<float>(std::uint32_t(std::uint64_t(told)))});
  }
}

void Measurement::complete(StepResult& result) const {
  if (apart() && std::int64_t(all_.size()) == bench_.definition().local_sgd.workers) sum_up(all_, result);
}

}  // namespace seeksim::runtime
