// CompressedReduction: brings gradients to their owners in fewer bits. The samples of a step form groups, as those of a
// worker do; each group's gradient, with what compression left of earlier ones, is compressed where the group is and
// sent to the owners of its parts. They take it apart and fold the groups in the order of the tree. What a group is
// depends on the plan alone, so any number of ranks has the bits of one that does all groups in turn.
//
// Where it is an optimizer's momentum that is compressed, a group sends its share of it with its gradient in it, and
// the owners' sums go back compressed once more.
#pragma once

#include <span>
#include <vector>

#include "kernels/compression.h"
#include "runtime/comm/communicator.h"
#include "runtime/layout/partition.h"
#include "runtime/parts/residuals.h"

namespace seeksim::runtime {

kernels::WireForm wire_form(const CompressionPlan& plan);
// The slabs of a gradient, and their places on the wire, one after another; of a shard only, what lies in it. Their
// blocks are the norm's, so that no owner has a part of one.
std::vector<kernels::WireRun> wire_runs(const Parameters& parameters, kernels::WireForm form, ShardInfo shard);

class CompressedReduction {
 public:
  CompressedReduction(Rank& rank, const Parameters& parameters, const TrainPlan& plan, Residuals& residuals)
      : rank_(rank), parameters_(parameters), plan_(plan), residuals_(residuals) {}

  // A new world. Allocates what depends on it.
  void connect(Communicator& comm, const Partition& partition);

  // What is summed, in this order: groups times `before` in gradients, times `at_loss` in losses; `after` once at the
  // root of the gradients.
  struct Factors {
    float before = 1;
    float after = 1;
    float at_loss = 1;
  };
  // What a group sends where it is momentum: the one before times `share`, and its gradient times `of_gradient`.
  struct Momentum {
    VecView<const float> before;  // empty: gradients are sent
    float share = 0;
    float of_gradient = 1;
  };
  // parts: of each group that is here, in order, the gradient space. sums: this member's shard. loss: one element, or
  // none where it is not wanted. Enqueued on the communication queue; returns the Op to wait for.
  Op reduce(std::int64_t step, std::span<const VecView<const float>> parts, Factors factors, const Momentum& momentum,
            VecView<float> sums, VecView<float> loss);
  // After it, where sums are compressed too: all = every member's, of which this member's shard is there; times scale.
  // Likewise.
  Op send_back(std::int64_t step, VecView<float> all, float scale);
  // After these, with their queue waited for.
  std::int64_t elements() const;
  std::int64_t bytes() const;
  // Elements by group that is here, and of the sum where it is compressed too.
  VecView<const std::int64_t> unconserved() const;

 private:
  ShardInfo wire_of(int member) const;
  Launcher launcher(std::int64_t step) const;
  Op op(OpKind kind, std::int64_t step, const char* tensor) const;
  void compress(Launcher& launch, std::span<const VecView<const float>> parts, float before, const Momentum& momentum);
  void compress_sum(Launcher& launch, VecView<float> sum);
  void list_pieces();
  void decompress(Launcher& launch);
  void fold(Launcher& launch, Factors factors, VecView<float> sums, VecView<float> loss) const;
  VecView<std::byte> wire(Index own_group, ShardInfo bytes) const;

  Rank& rank_;
  const Parameters& parameters_;
  const TrainPlan& plan_;
  Residuals& residuals_;

  // Made by connect().
  Communicator* comm_ = nullptr;
  const Partition* partition_ = nullptr;
  std::vector<kernels::WireRun> all_, mine_;  // of a whole gradient, and of this member's shard
  std::vector<kernels::WireRun> own_;         // the latter, counted from its beginning
  Index wire_all_ = 0;                        // bytes of a group
  struct Buffers {
    BufferPtr wire;    // of the groups that are here, whole
    BufferPtr sum;     // of the sum of all groups, whole
    BufferPtr slots;   // of all groups, this member's shard, as it arrives
    BufferPtr values;  // the same in fp32
    BufferPtr losses;  // of all groups
    BufferPtr counts;  // unconserved elements of each group that is here, and of the sum
  } memory_;
  std::vector<Piece> pieces_;
};

}  // namespace seeksim::runtime
