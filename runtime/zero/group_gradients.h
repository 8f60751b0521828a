// GroupGradients: what backward passes leave where experts are divided among the ranks of a group and gradients are
// sharded. An expert's gradients are made over the samples of the whole group; of all others each rank has those of its
// own samples, and the ranks gather each other's, bucket by bucket. What siblings have in the step's tree is added up,
// and from there on the group is one member of the reduction.
#pragma once

#include <span>
#include <vector>

#include "runtime/comm/expert_group.h"
#include "runtime/layout/gradient_split.h"
#include "runtime/model/model.h"
#include "runtime/zero/gradient_reducer.h"

namespace seeksim::runtime {

// Where gradients are replicated: those of both kinds, of each block, side by side.
class SplitSink final : public GradientSink {
 public:
  using Nodes = std::vector<VecView<float>>;
  SplitSink(const GradientSplit& split, const Nodes& others, const Nodes& experts)
      : split_(split), others_(others), experts_(experts) {}
  VecView<float> open(Index block, Index offset, Index size) override {
    const GradientSplit::Run& run = split_.run_of(offset);
    return (run.experts ? experts_ : others_)[std::size_t(block)].part(run.at + offset - run.lo, size);
  }
  void close(Index, Index) override {}

 private:
  const GradientSplit& split_;
  const Nodes &others_, &experts_;
};

class GroupGradients {
 public:
  GroupGradients(Rank& rank, const GradientSplit& split, ExpertGroup& group, const PlantedBug& bug);

  // A micro-batch of a step of `leaves` samples. nodes: of each rank's samples, ascending, by rank.
  void begin(Index leaves, std::vector<std::vector<kernels::TreeNode>> nodes);
  // Nodes of the micro-batch, of all ranks. Each has a slot in a bucket, in that order.
  Index slots() const;
  struct Slots {
    Index first = 0;
    Index count = 0;
  };
  // Those that a backward pass fills here, of a bucket that begins at `lo`: all of experts, this rank's own of others.
  Slots filled(Index lo) const;

  // slots: the bucket's elements of each node. Enqueued on `launch`, after what fills them; what is in them is lost.
  // Returns the subtree roots of the group's samples, ascending.
  std::vector<VecView<const float>> bring_together(Launcher& launch, const Bucket& bucket,
                                                   std::span<const VecView<float>> slots);

 private:
  bool of_experts(Index lo) const;
  Slots slots_of(int rank) const;
  void gather(Launcher& launch, std::span<const VecView<float>> slots);

  Rank& rank_;
  const GradientSplit& split_;
  ExpertGroup& group_;
  PlantedBug bug_;
  Index leaves_ = 0;
  std::vector<std::vector<kernels::TreeNode>> nodes_;  // by rank
  std::vector<Piece> pieces_;
};

}  // namespace seeksim::runtime
