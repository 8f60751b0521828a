// ContextGradients: where a backward pass puts the gradients of a rank's own tokens. Each of its chunks of a sample is
// a node; when a range is closed, the ranks of the context group bring theirs together, and the blocks of samples get
// what one rank with all tokens would have put there.
#pragma once

#include <vector>

#include "runtime/comm/context_group.h"
#include "runtime/model/model.h"

namespace seeksim::runtime {

class ContextGradients final : public GradientSink {
 public:
  // Of a micro-batch of `samples` samples with these blocks, which `into` takes.
  ContextGradients(ContextGroup& group, Launcher& launch, Index samples, std::span<const GradientBlock> blocks,
                   GradientSink& into);

  // The blocks to give to backward: each a chunk of a sample, in the order of this rank's rows.
  const std::vector<GradientBlock>& chunks() const { return chunks_; }

  VecView<float> open(Index block, Index offset, Index size) override;
  void close(Index offset, Index size) override;

 private:
  ContextGroup& group_;
  Launcher& launch_;
  Index samples_;
  std::span<const GradientBlock> blocks_;
  GradientSink& into_;
  std::vector<GradientBlock> chunks_;
};

}  // namespace seeksim::runtime
