// GradientReducer: brings gradients to where their shard lives. Members send the owner their subtree roots of its part,
// bucket by bucket on the communication queue; the owner folds what arrived into nodes of a tree over the step's
// samples that holds its shard only. The order of additions is the tree's, so buckets, micro-steps and owners leave no
// trace.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "runtime/comm/communicator.h"
#include "runtime/comm/edge.h"
#include "runtime/comm/gradient_tree.h"
#include "runtime/layout/partition.h"

namespace seeksim::runtime {

// Elements [lo, hi) of the gradient space that travel together.
struct Bucket {
  Index lo = 0;
  Index hi = 0;
  const char* name = "";  // of the first parameter in it
  friend bool operator==(const Bucket& a, const Bucket& b) { return a.lo == b.lo && a.hi == b.hi; }
};

// In the order in which backward completes them, from the end of the gradient space to its front: as many parameters as
// `elements` hold, and one at least. What one launch writes (the two parameters of a norm) stays together. Where
// experts are divided among ranks, a bucket has nothing but experts or none (GradientSplit).
std::vector<Bucket> gradient_buckets(const Parameters& parameters, Index elements);

class GradientReducer {
 public:
  GradientReducer(Rank& rank, const Parameters& parameters, const TrainPlan& plan);

  // A new world. Allocates what depends on it. comm: of those among whom the partition cuts. replicas: of those with
  // the same shard in other shard groups, one of each, in their order; null: there is one group.
  void connect(Communicator& comm, const Partition& partition, const StepCut& cut, Communicator* replicas = nullptr);

  // gradients: of this member's shard, where the step's sum times `factor` shall be after finish(). Where the optimizer
  // is offloaded that is memory of the host: a bucket's sums go there as soon as they are complete, and all that is
  // still to be done with them is done by the host's processor.
  // accumulator: what sums of several reductions are rounded to between them; fp32 unless a quirk says otherwise.
  void begin_step(std::int64_t step, VecView<float> gradients, float factor, ElementType accumulator);
  void begin_reduction(int k);  // the k-th of the cut
  // parts: this member's subtree roots of cut.samples(k, position), the bucket's elements of each. Enqueued; returns
  // when the parts may be overwritten.
  Event reduce(const Bucket& bucket, std::span<const VecView<const float>> parts);
  void end_reduction();
  // loss: on the last member, where the gradients are.
  void finish(VecView<float> loss);

  const std::vector<Bucket>& buckets() const { return buckets_; }
  Launcher& launcher() { return launch_; }
  Launcher& at_home() { return offloaded() ? host_ : launch_; }  // what works on the gradients of finish()
  const Op& last_op() const { return last_; }

 private:
  std::vector<kernels::TreeNode> nodes(int member) const;
  std::vector<VecView<float>> list_pieces(const Bucket& bucket, const std::vector<OwnedRange>& owned, Index stride,
                                          std::span<const VecView<const float>> parts);
  void scatter(const Bucket& bucket, const Op& op, const std::vector<OwnedRange>& owned,
               std::span<const VecView<const float>> parts);
  void reduce_by_library(const Bucket& bucket, const Op& op, const std::vector<OwnedRange>& owned, Index stride,
                         std::span<const VecView<const float>> parts);
  void fold(const Bucket& bucket, const std::vector<OwnedRange>& owned, std::span<const VecView<const float>> parts);
  VecView<float> home_of(const OwnedRange& range, std::size_t node) const;
  VecView<float> sum_of(const OwnedRange& range, std::size_t node, Index stride, Index at) const;
  Event reduced(const char* tensor, const std::vector<OwnedRange>& owned, Index stride);
  bool offloaded() const { return home_ != Space::device; }
  bool at_once() const { return cut_.count() == 1 && replicas_ == nullptr; }  // the sums of a reduction are final
  void reduce_over_groups();

  Rank& rank_;
  const Parameters& parameters_;
  PlantedBug bug_;
  Space home_;  // of reduced gradients
  std::vector<Bucket> buckets_;
  Launcher launch_;  // on the communication queue
  Launcher copies_;  // on the copy queue
  Launcher host_;    // on the host's processor

  // Made by connect().
  Communicator *comm_ = nullptr, *replicas_ = nullptr;
  const Partition* partition_ = nullptr;
  StepCut cut_;
  std::optional<GradientTree> tree_;  // partial sums of this member's reduced gradients
  struct Buffers {
    BufferPtr slots;    // where subtree roots of a bucket arrive
    BufferPtr extras;   // the head's share and the loss, summed
    BufferPtr addend;   // of a bucket, where a library sums
    BufferPtr library;  // its sums of this member's elements, where they are compared with ours
  } memory_;
  struct Landing {
    BufferPtr buffer;
    Event free;  // what landed there has left
  };
  std::vector<Landing> landings_;  // where sums wait on the device for their way to the host
  std::size_t landing_ = 0;        // in use

  // Told by begin_step() and begin_reduction().
  struct UnderWay {
    int k = 0;
    std::int64_t step = 0;
    VecView<float> gradients;
    float factor = 1;
    ElementType accumulator = ElementType::f32;
  } now_;
  std::vector<kernels::TreeNode> open_;   // what the reduction under way adds up to
  std::vector<VecView<float>> open_out_;  // where
  std::vector<Piece> pieces_;
  std::vector<TreeReduceSlice> slices_;
  std::vector<TreeTarget> targets_;
  std::vector<SumShare> shares_;
  Op last_;
};

}  // namespace seeksim::runtime
