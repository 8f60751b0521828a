// CompressedReduction: brings gradients to their owners in fewer bits. The samples of a step form groups, as those of a
// worker do; each group's gradient, with what compression left of earlier ones, is compressed where the group is and
// sent to the owners of its parts. They take it apart and fold the groups in the order of the tree. What a group is
// depends on the plan alone, so any number of ranks has the bits of one that does all groups in turn.
#pragma once

#include <span>
#include <vector>

#include "kernels/compression.h"
#include "runtime/comm/communicator.h"
#include "runtime/layout/partition.h"
#include "runtime/zero/residuals.h"

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
  // parts: of each group that is here, in order, the gradient space. sums: this member's shard. loss: one element, or
  // none where it is not wanted. Enqueued on the communication queue; returns the Op to wait for.
  Op reduce(std::int64_t step, std::span<const VecView<const float>> parts, Factors factors, VecView<float> sums,
            VecView<float> loss);
  // After reduce(), with its queue waited for.
  std::int64_t elements() const { return residuals_.groups().size() * parameters_.trainable_size(); }
  std::int64_t bytes() const { return residuals_.groups().size() * wire_all_; }
  VecView<const std::int64_t> unconserved() const;  // by group that is here

 private:
  ShardInfo wire_of(int member) const;
  void compress(Launcher& launch, std::span<const VecView<const float>> parts, float before);
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
  Index wire_all_ = 0;                        // bytes of a group
  struct Buffers {
    BufferPtr wire;    // of the groups that are here, whole
    BufferPtr slots;   // of all groups, this member's shard, as it arrives
    BufferPtr values;  // the same in fp32
    BufferPtr losses;  // of all groups
    BufferPtr counts;  // unconserved elements of each group that is here
  } memory_;
  std::vector<Piece> pieces_;
};

}  // namespace seeksim::runtime
