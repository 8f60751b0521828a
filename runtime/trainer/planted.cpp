// Planted bugs of a step that are more than an edit of a value: what the real mistakes did, with kernels of their own.
#include "kernels/pointwise.h"
#include "kernels/tree.h"
#include "runtime/launch/typed_ops.h"
#include "runtime/trainer/trainer.h"

namespace seeksim::runtime {

using kernels::Lane;
using kernels::Vec;

namespace {

void add_values(Launcher& compute, const char* tensor, VecView<const float> more, VecView<float> sums) {
  compute(
      tensor, SEEKSIM_SITE, memory_cost(3 * sums.n, 1.0 / 3),
      [](Lane lane, Vec<const float> in, Vec<float> out) { kernels::tree_add(lane, out, in, out); }, more, sums);
}

void multiply_values(Launcher& compute, const char* tensor, float times, VecView<float> values) {
  compute(
      tensor, SEEKSIM_SITE, memory_cost(2 * values.n),
      [times](Lane lane, Vec<float> v) { kernels::scale(lane, v, times); }, values);
}

}  // namespace

// As if the module were called beside its wrapper: the mean over this rank's own samples, and nobody is asked.
void Trainer::reduce_alone() {
  compute_.phase(Phase::grad_reduce);
  Index own = 0;
  for (const SampleRange& samples : micro_batches_) own += samples.size();
  const float share = own > 0 ? float(plan_.definition.global_batch) / float(own) : 1.0f;
  for (std::size_t piece = 0; piece < trees_.size(); ++piece) {
    const Index begin = parameters_.gradient_begin(piece), n = parameters_.gradient_end(piece) - begin;
    const VecView<float> sums = vec<float>(*sums_, begin, n);
    const std::vector<VecView<const float>> parts = trees_[piece].parts();
    copy_values(compute_, "gradients", SEEKSIM_SITE, AnyVec(parts.at(0)), AnyVec(sums));
    for (std::size_t i = 1; i < parts.size(); ++i) add_values(compute_, "gradients", parts[i], sums);
    multiply_values(compute_, "gradients", scale_.at_root * average().after * share, sums);
  }
  host_after_all(rank_, compute_.last(), plan_.recovery.watchdog_ns, Edge::gradients_reduced, plan_.bug);
}

// As if zero_grad were never called.
void Trainer::add_old_gradients() {
  compute_.phase(Phase::grad_reduce);
  const Index n = parameters_.trainable_size();
  const VecView<float> sums = vec<float>(*sums_, 0, n);
  if (old_sums_) {
    add_values(compute_, "gradients", reads(vec<float>(*old_sums_, 0, n)), sums);
  } else {
    old_sums_ = rank_.device.allocate(std::size_t(n) * sizeof(float), MemoryTag::gradients, "gradients never zeroed");
  }
  copy_values(compute_, "gradients", SEEKSIM_SITE, AnyVec(reads(sums)), AnyVec(vec<float>(*old_sums_, 0, n)));
}

// As if the sum over ranks had been left out of the norm.
void Trainer::forget_others_norms() {
  const Partition& partition = keeper_->partition();
  const ShardInfo& own = keeper_->own().shard;
  const Index first = partition.norm_blocks_before(own.offset), all = partition.norm_blocks();
  const Index end = partition.norm_blocks_before(own.offset + own.size);
  clear_values(compute_, "norms", SEEKSIM_SITE, AnyVec(vec<float>(*norm_blocks_, 0, first)));
  clear_values(compute_, "norms", SEEKSIM_SITE, AnyVec(vec<float>(*norm_blocks_, end, all - end)));
}

// What all tensor ways hold escapes the coefficient that is about to be applied to everything.
void Trainer::unclip_replicated(float coefficient) {
  const AnyVec gradients = flat_gradients();
  if (keeper_ || gradients.type != ElementType::f32) return;
  for (const ParameterInfo* p : parameters_.trainable()) {
    if (!p->splits)
      multiply_values(compute_, p->name, 1.0f / coefficient, gradients.part(p->offset, p->size).as<float>());
  }
}

}  // namespace seeksim::runtime
