// ContextCut: which tokens of each sample a rank of a context group has. A sample is cut into chunks of whole segments
// (its eighths), one a rank in their order; or, zig-zag, into two a rank: chunk r from the front and chunk r from the
// end, so that under a causal mask each rank's tokens see as many others as any other rank's.
#pragma once

#include "kernels/check.h"
#include "kernels/slabs.h"
#include "runtime/plan/parallel_plan.h"
#include "runtime/plan/plan.h"

namespace seeksim::runtime {

using kernels::Index;

struct ContextCut {
  Index tokens = 0;  // of a sample
  int ranks = 1;
  bool zigzag = false;

  int chunks_of_rank() const { return zigzag ? 2 : 1; }
  int chunks() const { return ranks * chunks_of_rank(); }
  Index chunk_size() const { return tokens / chunks(); }
  Index size() const { return tokens / ranks; }  // tokens of a rank
  // The number in the sample of a rank's chunk i, of chunks_of_rank(). They ascend.
  int chunk(int rank, int i) const {
    SEEKSIM_CHECK(i >= 0 && i < chunks_of_rank(), "chunk %d of a rank", i);
    return i == 0 ? rank : chunks() - 1 - rank;
  }
  // Its first token in the sample.
  Index first(int rank, int i) const { return chunk(rank, i) * chunk_size(); }
};

inline ContextCut context_cut(const ModelPlan& model, const ParallelPlan& parallel) {
  return {model.context, parallel.context, parallel.context_zigzag};
}

}  // namespace seeksim::runtime
