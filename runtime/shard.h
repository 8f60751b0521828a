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
};

// `n` elements among `count` owners: contiguous, as even as multiples of the 1024-element block allow, the last short.
std::vector<ShardInfo> shard_evenly(Index n, int count);

// Samples [begin, end) of a step.
struct SampleRange {
  Index begin = 0;
  Index end = 0;
};

// A step's samples among `count` members, contiguous (R3: gradients replicated). Where `count` does not divide the batch:
// even by samples; on multiples of 8 when every rank has at least 8.
std::vector<SampleRange> cut_samples(Index global_batch, int count);

// The micro-batches of one rank: at most `micro_batch` samples each, cut so that as many as possible are aligned tree nodes.
std::vector<SampleRange> micro_batches(SampleRange samples, Index micro_batch);

}  // namespace seeksim::runtime
