#include "runtime/zero/bucket_sink.h"

#include <algorithm>

#include "kernels/check.h"
#include "kernels/pointwise.h"
#include "runtime/rules/bugs.h"
#include "runtime/seams/edges.h"

namespace seeksim::runtime {

using kernels::Lane;
using kernels::Vec;

BucketSink::BucketSink(Device& device, const TrainPlan& plan, GradientReducer& reducer, Index blocks_max,
                       GroupGradients* group)
    : reducer_(reducer), group_(group), overlap_(plan.layout.zero.overlap_comm), bug_(plan.bug) {
  for (const Bucket& bucket : reducer.buckets()) elements_ = std::max(elements_, bucket.hi - bucket.lo);
  const std::size_t count = overlap_ && reducer.buckets().size() > 1 ? 2 : 1;
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t floats = std::size_t(std::max<Index>(blocks_max, 1) * elements_);
    buffers_.push_back(device.allocate(floats * sizeof(float), MemoryTag::communication, "gradient bucket"));
  }
  reduced_.resize(count);
}

void BucketSink::begin(Launcher& compute, std::size_t piece, Index blocks, float before) {
  compute_ = &compute;
  blocks_ = blocks;
  before_ = before;
  current_ = reducer_.first_bucket(piece);
  fresh_ = true;
}

VecView<float> BucketSink::part(Index slot) const {
  const Bucket& bucket = reducer_.buckets()[current_];
  return vec<float>(*buffers_[buffer_], slot * elements_, bucket.hi - bucket.lo);
}

GroupGradients::Slots BucketSink::filled() const {
  return group_ != nullptr ? group_->filled(reducer_.buckets()[current_].lo) : GroupGradients::Slots{0, blocks_};
}

VecView<float> BucketSink::open(Index block, Index offset, Index size) {
  const Bucket& bucket = reducer_.buckets()[current_];
  SEEKSIM_CHECK(offset >= bucket.lo && offset + size <= bucket.hi, "[%lld, +%lld) is not in the bucket that is filled",
                static_cast<long long>(offset), static_cast<long long>(size));
  // Without overlap that was waited for when the bucket was reduced.
  if (fresh_ && overlap_) after(compute_->queue(), reduced_[buffer_], Edge::bucket_free, bug_);
  fresh_ = false;
  return part(filled().first + block).part(offset - bucket.lo, size);
}

void BucketSink::close(Index offset, Index size) {
  const Bucket& bucket = reducer_.buckets()[current_];
  SEEKSIM_CHECK(offset >= bucket.lo && offset + size <= bucket.hi, "[%lld, +%lld) is not in the bucket that is filled",
                static_cast<long long>(offset), static_cast<long long>(size));
  if (offset == bucket.lo) reduce_current();
}

void BucketSink::scale_current() {
  if (before_ == 1.0f) return;
  const GroupGradients::Slots own = filled();
  for (Index slot = own.first; slot < own.first + own.count; ++slot) {
    const VecView<float> values = part(slot);
    (*compute_)(
        reducer_.buckets()[current_].name, SEEKSIM_SITE, memory_cost(2 * values.n),
        [factor = before_](Lane lane, Vec<float> x) { kernels::scale(lane, x, factor); }, values);
  }
}

void BucketSink::reduce_current() {
  scale_current();
  const Bucket& bucket = reducer_.buckets()[current_];
  std::vector<VecView<float>> slots;
  const Index count = group_ != nullptr ? group_->slots() : blocks_;
  for (Index slot = 0; slot < count; ++slot) slots.push_back(part(slot));
  Launcher& communication = reducer_.launcher();
  after(communication.queue(), compute_->queue().record(), Edge::bucket_filled, bug_);
  std::vector<VecView<const float>> parts(slots.begin(), slots.end());
  if (group_ != nullptr) parts = group_->bring_together(communication, bucket, slots);
  if (!bug_.is(Bug::last_bucket_never_reduced) || current_ + 1 < reducer_.buckets().size())
    reduced_[buffer_] = reducer_.reduce(bucket, parts);
  const bool too_many = bug_.is(Bug::bucket_waited_for) && current_ == 0;
  if (!overlap_ || too_many) after(compute_->queue(), reduced_[buffer_], Edge::bucket_reduced, bug_);
  ++current_;
  buffer_ = (buffer_ + 1) % buffers_.size();
  fresh_ = true;
}

}  // namespace seeksim::runtime
