// ShardInfo: the whole sharding vocabulary of every ZeRO stage, and the cut of a step's samples among ranks.
#pragma once

#include <vector>

#include "kernels/tree.h"
#include "kernels/view.h"

namespace seeksim::runtime {

using kernels::Index;

// Elements [offset, offset + size) of a flat tensor.
struct ShardInfo {
  Index offset = 0;
  Index size = 0;
  friend bool operator==(const ShardInfo&, const ShardInfo&) = default;
};

// What both have; of size 0 where that is nothing.
ShardInfo common(ShardInfo a, ShardInfo b);

// `n` elements among `count` owners: contiguous, as even as multiples of the 1024-element block allow, the last short.
std::vector<ShardInfo> shard_evenly(Index n, int count);
// The shard of one owner, without making the list.
ShardInfo shard_of(Index n, int count, int owner);

// Samples [begin, end) of a step.
struct SampleRange {
  Index begin = 0;
  Index end = 0;
  Index size() const { return end - begin; }
  friend bool operator==(const SampleRange&, const SampleRange&) = default;
};

// A step's samples among `count` members, contiguous (R3: gradients replicated). Where `count` does not divide the
// batch: even by samples; on multiples of 8 when every rank has at least 8.
std::vector<SampleRange> cut_samples(Index global_batch, int count);
// The samples of one member, without making the list. grain: of a batch of parts of so many samples, none of which is
// cut.
SampleRange samples_of(Index global_batch, int count, int member, Index grain = 1);

// How a step's samples meet in reductions: which of them all members together bring to the k-th reduction, and which of
// those each member. A formula, so that every rank (and every kernel) can ask it about all others.
struct StepCut {
  Index leaves = 0;          // samples of the step
  int members = 1;           // of the reductions
  Index micro = 1;           // samples a micro-batch at most
  bool interleaved = false;  // false: one reduction a step, contiguous samples a rank (gradients replicated);
                             // true: one a micro-step, contiguous samples a micro-step (gradients sharded, R3)
  Index grain = 1;           // a rank's samples are a multiple of so many, in each reduction (compressed groups)
  int each = 1;              // ranks that share a member's samples (an expert group), in turn; all count from 0
  int groups = 1;            // shard groups, each of `members`; a group's samples are contiguous
  int group = 0;             // which of them these members are
  int count() const;         // of reductions, the same in all groups
  SampleRange own() const;   // samples of the group
  SampleRange window(int k) const;
  SampleRange samples(int k, int member) const;
  SampleRange samples_of_rank(int k, int rank) const;  // rank: of members * each
};

// The micro-batches of one rank: ceil(samples / micro_batch) of at most `micro_batch` samples each. Where that number
// allows it they begin on multiples of `micro_batch`, which are aligned tree nodes when it is a power of two.
std::vector<SampleRange> micro_batches(SampleRange samples, Index micro_batch);
// The same of a rank with samples of several workers, `part` each: no micro-batch has samples of two.
std::vector<SampleRange> micro_batches_of_parts(SampleRange samples, Index micro_batch, Index part);

}  // namespace seeksim::runtime
