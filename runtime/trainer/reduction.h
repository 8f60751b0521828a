// Reduction: takes in what backward passes leave, and brings it together over the ranks: the gradient of the global
// batch, the same bits everywhere. Where gradients are replicated micro-batches meet in a tree on this rank, and one
// reduction follows; where they are sharded each full bucket is on its way to its owners while backward goes on.
//
// Where experts are divided among the ranks of a group, a rank has its experts' gradients of the whole group's samples.
// The others come together in the group first, those of a step or (sharded) of a bucket; after that a group is one
// member of the reduction.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "runtime/comm/gradient_tree.h"
#include "runtime/layout/gradient_split.h"
#include "runtime/parts/compressed_reduction.h"
#include "runtime/parts/low_rank.h"
#include "runtime/rules/quirks.h"
#include "runtime/trainer/tensors.h"
#include "runtime/trainer/world.h"
#include "runtime/zero/bucket_sink.h"
#include "runtime/zero/bucketed_sums.h"
#include "runtime/zero/gradient_reducer.h"
#include "runtime/zero/group_gradients.h"
#include "runtime/zero/quantised_reduction.h"

namespace seeksim::runtime {

class Reduction {
 public:
  Reduction(Workbench& bench, Tensors& tensors, World& world) : bench_(bench), tensors_(tensors), world_(world) {}

  void allocate();
  // A new world. blocks: nodes that a micro-batch fills at most, of a whole expert group where there is one.
  void connect(Index blocks);
  void disconnect();
  // Gives back the memory between steps. Nothing may be pending.
  void give_back();

  void begin_step();
  // Runs the backward pass of a piece for a micro-batch, and takes its gradients in. backward(sink) launches it.
  using Backward = std::function<void(GradientSink&)>;
  void take(const SampleRange& samples, int micro_batch, std::size_t piece, const Backward& backward);
  // A rank without samples sends what others have sent during backward: before any other operation of the step.
  void end_passes();
  // All passes are enqueued: the sums of all ranks, where they belong. loss: where its sum shall be on the member that
  // owns it, where the optimizer is sharded.
  void finish(VecView<float> loss);

  // The step is committed. applied: what compression left out of it is what the next one adds; else that stays as it
  // was.
  void commit(std::int64_t step, bool applied);

  // This rank's own sums, by piece; without its experts', and where there are no buckets of them.
  std::vector<GradientTree>& trees() { return trees_; }
  const GradientSplit* split() const { return split_ ? &*split_ : nullptr; }  // where experts are divided
  // Of the tree over the step's samples at which sums stay apart.
  int level() const;
  RankAverage average() const { return rank_average(bench_.quirks(), world_.comm().size()); }

 private:
  std::vector<std::vector<kernels::TreeNode>> nodes_of_group() const;
  void take_divided(const SampleRange& samples, std::size_t piece, const Backward& backward);
  void gather_in_group();
  TreeOwnership ownership() const;
  void all_reduce();
  void all_reduce_divided();
  std::vector<VecView<const float>> roots(const Bucket& bucket) const;
  void add_head_use();
  void hold_rounded();
  void reduce_to_owners(VecView<float> loss);
  void add_other_stage();
  void reduce_compressed(VecView<float> loss);
  void come_late();
  void tell_late(std::int64_t step);
  void reduce_factors();
  CompressionRecord compression_record(std::int64_t step) const;
  CompressedReduction::Momentum momentum() const;
  void keep_apart();
  void round_groups();
  ElementType accumulator() const { return accumulation_type(bench_.quirks(), bench_.compute_type()); }

  Workbench& bench_;
  Tensors& tensors_;
  World& world_;
  std::vector<GradientTree> trees_;         // this rank's subtree roots, by piece, where gradients are replicated
  std::optional<BucketedSums> bucketed_;    // likewise, by bucket, where they travel during backward
  std::optional<GradientCodes> codes_;      // where gradients are quantised, and replicated
  std::optional<GradientSplit> split_;      // where experts are divided among ranks, and
  std::vector<GradientTree> of_experts_;    // the group's subtree roots of the experts that are here, by piece
  std::optional<GradientReducer> reducer_;  // where the optimizer is sharded
  std::optional<BucketSink> buckets_;       // where gradients are, and
  std::optional<GroupGradients> group_;     // experts are divided among ranks
  // Where gradients are compressed, and how they are cut among those who sum them.
  std::optional<Partition> partition_;
  std::optional<CompressedReduction> compressed_;
  std::optional<LowRankReduction> low_rank_;
  bool compresses_ = false;  // in the step that is under way
};

}  // namespace seeksim::runtime
