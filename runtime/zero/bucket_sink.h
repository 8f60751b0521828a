// BucketSink: where a backward pass writes when gradients are sharded: into buckets, each reduced as soon as it is
// full.
#pragma once

#include <vector>

#include "runtime/model/model.h"
#include "runtime/zero/gradient_reducer.h"
#include "runtime/zero/group_gradients.h"

namespace seeksim::runtime {

class BucketSink final : public GradientSink {
 public:
  // blocks_max: of a micro-batch, at most; of a group's where there is one. group: where experts are divided among
  // ranks; null: they are not.
  BucketSink(Device& device, const TrainPlan& plan, GradientReducer& reducer, Index blocks_max,
             GroupGradients* group = nullptr);

  // For a backward pass of a piece of the model. blocks: of this rank's samples. before: what every block is multiplied
  // by on its way into the reduction.
  void begin(Launcher& compute, std::size_t piece, Index blocks, float before);
  VecView<float> open(Index block, Index offset, Index size) override;
  void close(Index offset, Index size) override;

 private:
  void reduce_current();
  void scale_current();
  VecView<float> part(Index slot) const;
  GroupGradients::Slots filled() const;  // slots of the current bucket that backward writes here

  GradientReducer& reducer_;
  GroupGradients* group_;
  bool overlap_;
  PlantedBug bug_;
  Index elements_ = 0;  // of the largest bucket
  std::vector<BufferPtr> buffers_;
  std::vector<Event> reduced_;  // by buffer
  Launcher* compute_ = nullptr;
  Index blocks_ = 0;
  float before_ = 1;
  std::size_t current_ = 0;  // bucket
  std::size_t buffer_ = 0;
  bool fresh_ = true;  // nothing written into the current bucket yet
};

}  // namespace seeksim::runtime
