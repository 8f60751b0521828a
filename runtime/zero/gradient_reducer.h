// GradientReducer: brings gradients to where their shard lives. Members send the owner their subtree roots of its part,
// bucket by bucket on the communication queue; the owner folds what arrived into nodes of a tree over the step's
// samples that holds its shard only. The order of additions is the tree's, so buckets, micro-steps and owners leave no
// trace.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "runtime/comm/communicator.h"
#include "runtime/comm/edge.h"
#include "runtime/comm/gradient_tree.h"
#include "runtime/layout/partition.h"
#include "runtime/zero/gradient_buckets.h"
#include "runtime/zero/quantised_reduction.h"

namespace seeksim::runtime {

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
  // The k-th of the cut, of a piece of the model. Those of other pieces may be at another k.
  void begin_reduction(int k, std::size_t piece);
  // parts: this member's subtree roots of cut.samples(k, position), the bucket's elements of each. Enqueued; returns
  // when the parts may be overwritten.
  Event reduce(const Bucket& bucket, std::span<const VecView<const float>> parts);
  void end_reduction();
  // Where sums go home once a step: elements [at, at + n) of this member's gradients are there when what is enqueued on
  // at_home() is done. Those to which something is still to be added are left out.
  using Came = std::function<void(Index at, Index n)>;
  void tell(Came came) { now_.came = std::move(came); }
  // loss: on the last member, where the gradients are.
  void finish(VecView<float> loss);

  const std::vector<Bucket>& buckets() const { return buckets_; }
  std::size_t first_bucket(std::size_t piece) const;  // that backward of the piece fills; none is of two pieces
  Launcher& launcher() { return launch_; }
  Launcher& at_home() { return offloaded() ? host_ : launch_; }  // what works on the gradients of finish()
  Launcher& copies() { return copies_; }                         // between the device and the host
  bool offloaded() const { return home_ != Space::device; }
  Space home() const { return home_; }  // of reduced gradients
  const Op& last_op() const { return last_; }

 private:
  std::vector<kernels::TreeNode> nodes(int member) const;
  std::vector<kernels::TreeNode> roots(int k) const;
  std::vector<VecView<float>> list_pieces(const Bucket& bucket, const std::vector<OwnedRange>& owned, Index stride,
                                          std::span<const VecView<const float>> parts);
  void scatter(const Bucket& bucket, const Op& op, const std::vector<OwnedRange>& owned, Index stride,
               std::span<const VecView<const float>> parts);
  void reduce_by_library(const Bucket& bucket, const Op& op, const std::vector<OwnedRange>& owned, Index stride,
                         std::span<const VecView<const float>> parts);
  void fold(const Bucket& bucket, const std::vector<OwnedRange>& owned, std::span<const VecView<const float>> parts);
  VecView<float> home_of(const OwnedRange& range, std::size_t node) const;
  VecView<float> sum_of(const OwnedRange& range, std::size_t node, Index stride, Index at) const;
  Event reduced(const char* tensor, const std::vector<OwnedRange>& owned, Index stride);
  bool at_once() const { return cut_.count() == 1 && replicas_ == nullptr; }  // the sums of a reduction are final
  void add_partial_sums();
  void reduce_over_groups();
  void finish_sums();

  Rank& rank_;
  const Parameters& parameters_;
  PlantedBug bug_;
  Space home_;  // of reduced gradients
  std::vector<Bucket> buckets_;
  Launcher launch_;  // on the communication queue
  Launcher copies_;  // on the copy queue
  Launcher host_;    // on the host's processor
  std::optional<QuantisedReduction> quantised_;

  // Made by connect().
  Communicator *comm_ = nullptr, *replicas_ = nullptr;
  const Partition* partition_ = nullptr;
  StepCut cut_;
  // Partial sums of this member's reduced gradients [begin, end): of a piece where each micro-step reduces, else of
  // all.
  struct PartialSums {
    Index begin = 0, end = 0;
    GradientTree tree;
  };
  std::vector<PartialSums> sums_;
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

  // Told by begin_step(), begin_reduction() and tell().
  struct UnderWay {
    int k = 0;
    std::size_t piece = 0;  // in sums_
    std::int64_t step = 0;
    VecView<float> gradients;
    float factor = 1;
    ElementType accumulator = ElementType::f32;
    Came came;
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
