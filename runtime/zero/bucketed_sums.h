// BucketedSums: where a backward pass writes when gradients are replicated and travel in buckets, as DDP's do. Each
// bucket has a gradient tree of its own (comm/gradient_tree.h), and the last micro-batch of a step sends it to all
// ranks as soon as it is full, while backward fills the next. Buckets decide no bit.
#pragma once

#include <optional>
#include <vector>

#include "runtime/comm/communicator.h"
#include "runtime/comm/edge.h"
#include "runtime/comm/gradient_tree.h"
#include "runtime/model/model.h"
#include "runtime/zero/gradient_buckets.h"

namespace seeksim::runtime {

class BucketedSums final : public GradientSink {
 public:
  BucketedSums(Rank& rank, const Parameters& parameters, const TrainPlan& plan);

  // A new world, in which this rank has samples of that tree.
  void connect(Communicator& comm, const TreeOwnership& ownership);

  // sums: of the whole gradient space, where the step's sums times `factor` shall be after finish().
  void begin_step(std::int64_t step, VecView<float> sums, float factor);
  // Between steps: gives back the memory of all nodes. Nothing may be pending.
  void give_back();

  // For a backward pass of a piece of the model, which fills these nodes. last: of the step.
  void begin(Launcher& compute, std::size_t piece, std::vector<kernels::TreeNode> nodes, bool last);
  VecView<float> open(Index block, Index offset, Index size) override;
  void close(Index offset, Index size) override;
  // Sends what is left.
  void finish(Launcher& compute);
  const Op& last() const { return last_; }  // of its operations

  const std::vector<Bucket>& buckets() const { return buckets_; }
  GradientTree& tree(std::size_t bucket) { return trees_[bucket]; }

 private:
  void send(Launcher& compute);

  const Parameters& parameters_;
  PlantedBug bug_;
  std::vector<Bucket> buckets_;
  std::vector<GradientTree> trees_;  // by bucket
  Queue& queue_;                     // for communication
  int rank_;
  Communicator* comm_ = nullptr;
  TreeOwnership ownership_;
  // Told by begin_step().
  std::int64_t step_ = 0;
  VecView<float> sums_;
  float factor_ = 1;
  std::size_t sent_ = 0;  // of the buckets
  Op last_;
  // Told by begin().
  Launcher* compute_ = nullptr;
  std::vector<kernels::TreeNode> nodes_;
  bool sends_ = false;
  std::size_t current_ = 0;          // bucket
  std::vector<VecView<float>> out_;  // of it, by node; empty: nothing is written into it yet
};

}  // namespace seeksim::runtime
