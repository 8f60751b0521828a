#include "runtime/model/context_gradients.h"

namespace seeksim::runtime {

ContextGradients::ContextGradients(ContextGroup& group, Launcher& launch, Index samples,
                                   std::span<const GradientBlock> blocks, GradientSink& into)
    : group_(group), launch_(launch), samples_(samples), blocks_(blocks), into_(into) {
  for (Index chunk = 0; chunk < group.cut().chunks_of_rank() * samples; ++chunk) chunks_.push_back({chunk, 1});
}

VecView<float> ContextGradients::open(Index block, Index, Index size) {
  return group_.node(samples_, int(block / samples_), block % samples_, size);
}

void ContextGradients::close(Index offset, Index size) {
  std::vector<ContextGroup::Block> blocks;
  for (std::size_t b = 0; b < blocks_.size(); ++b)
    blocks.push_back({blocks_[b].first, blocks_[b].count, into_.open(Index(b), offset, size)});
  group_.sum_nodes(launch_, "gradients of a context group", SEEKSIM_SITE, samples_, size, blocks);
  into_.close(offset, size);
}

}  // namespace seeksim::runtime
