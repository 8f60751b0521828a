#include "runtime/zero/bucketed_sums.h"

#include <algorithm>
#include <utility>

#include "kernels/check.h"
#include "runtime/rules/bugs.h"
#include "runtime/seams/edges.h"

namespace seeksim::runtime {

BucketedSums::BucketedSums(Rank& rank, const Parameters& parameters, const TrainPlan& plan)
    : parameters_(parameters), bug_(plan.bug), queue_(rank.device.communication_queue()), rank_(rank.id) {
  const ZeroPlan& zero = plan.layout.zero;
  const Index elements = bug_.is(Bug::ddp_buckets_differ, rank.id) ? 1 : zero.ddp_bucket_elements;
  buckets_ = ddp_buckets(parameters, zero.ddp_first_bucket_elements, elements);
  for (const Bucket& bucket : buckets_) trees_.emplace_back(rank.device, bucket.hi - bucket.lo);
}

void BucketedSums::connect(Communicator& comm, const TreeOwnership& ownership) {
  comm_ = &comm;
  ownership_ = ownership;
}

void BucketedSums::begin_step(std::int64_t step, VecView<float> sums, float factor) {
  step_ = step;
  sums_ = sums;
  factor_ = factor;
  sent_ = 0;
  out_.clear();  // of a step that was given up
  for (GradientTree& tree : trees_) tree.begin(ownership_.leaves);
}

void BucketedSums::give_back() {
  for (GradientTree& tree : trees_) tree.give_back();
}

// Of a model in several pieces ranks need not fill the buckets in one order: there they wait for finish().
void BucketedSums::begin(Launcher& compute, std::size_t piece, std::vector<kernels::TreeNode> nodes, bool last) {
  compute_ = &compute;
  nodes_ = std::move(nodes);
  sends_ = last && parameters_.pieces().size() == 1;
  const auto of_piece = [&](const Bucket& bucket) { return parameters_.piece_of(bucket.lo) == piece; };
  current_ = std::size_t(std::ranges::find_if(buckets_, of_piece) - buckets_.begin());
}

VecView<float> BucketedSums::open(Index block, Index offset, Index size) {
  const Bucket& bucket = buckets_[current_];
  SEEKSIM_CHECK(offset >= bucket.lo && offset + size <= bucket.hi, "[%lld, +%lld) is not in the bucket that is filled",
                static_cast<long long>(offset), static_cast<long long>(size));
  if (out_.empty())
    for (const kernels::TreeNode node : nodes_) out_.push_back(trees_[current_].open(node));
  return out_[std::size_t(block)].part(offset - bucket.lo, size);
}

void BucketedSums::close(Index offset, Index) {
  if (offset != buckets_[current_].lo) return;  // more of it comes
  if (!out_.empty())
    for (const kernels::TreeNode node : nodes_) trees_[current_].close(*compute_, node);
  out_.clear();
  ++current_;
  if (sends_) send(*compute_);
}

// The next one.
void BucketedSums::send(Launcher& compute) {
  const Bucket& bucket = buckets_[sent_];
  const GradientTree& tree = trees_[sent_];
  ++sent_;
  after(queue_, compute.queue().record(), Edge::bucket_filled, bug_);
  if (bug_.is(Bug::last_bucket_never_reduced) && sent_ == buckets_.size()) return;
  Op op;
  op.kind = OpKind::all_reduce;
  op.phase = Phase::grad_reduce;
  op.rank = rank_;
  op.step = step_;
  op.tensor = bucket.name;
  op.site = SEEKSIM_SITE;
  last_ =
      comm_->all_reduce(queue_, op, ownership_, tree.parts(), factor_, sums_.part(bucket.lo, bucket.hi - bucket.lo));
}

void BucketedSums::finish(Launcher& compute) {
  while (sent_ < buckets_.size()) send(compute);
}

}  // namespace seeksim::runtime
