// Communicator: an axis of ranks and its collectives, written once over Transport::exchange and reducing canonically
// (docs/numerics.md#communication). The bits never depend on the members, only on the leaves.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runtime/comm/gather_rule.h"
#include "runtime/launch/any_vec.h"
#include "runtime/launch/launcher.h"
#include "runtime/layout/shard.h"
#include "runtime/plan/plan.h"
#include "runtime/seams/rank.h"

namespace seeksim::runtime {

// What every member brings to a canonical sum: computed alike on all ranks from the cut of the batch, never sent. A
// formula and not a table, because in a world of 4,096 a table on every rank would be a gigabyte.
struct TreeOwnership {
  Index leaves = 0;
  int members = 1;
  int each = 1;     // ranks that share a member's samples, and
  Index grain = 1;  // of how many samples those are a multiple (StepCut)
  // The subtree roots of one member, in the order in which it brings them.
  std::vector<kernels::TreeNode> nodes(int position) const;
};

class Communicator {
 public:
  // Collective over the members; blocks until all have joined (Transport::create).
  // group: which of the communicators of one axis and epoch; the same on its members, no other's.
  Communicator(Rank& rank, Axis axis, std::uint32_t epoch, std::vector<int> members, TimeNs timeout_ns, int group = 0);
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;
  ~Communicator();  // aborts a communicator that failed, finalizes one that did not

  const std::vector<int>& members() const { return members_; }
  int size() const { return int(members_.size()); }
  int position() const { return position_; }  // of this rank among the members
  Comm handle() const { return comm_; }
  std::uint64_t id() const { return id_; }  // the same on all members
  std::uint32_t epoch() const { return epoch_; }
  std::uint64_t last_sequence() const { return sequence_; }
  // When this rank entered the operation; -1 when that is too long ago or never happened.
  TimeNs joined_ns(std::uint64_t sequence) const;

  // out (n) = canonical sum over all leaves, times factor, on every member. parts: this member's subtree roots in the
  // order of ownership.nodes(position()), n floats each. Enqueued on `queue`; the result is there after the queue's
  // next event. Where the transport has no native sum: each owner of a shard (block-aligned, ShardInfo) receives every
  // member's subtree roots of it, folds them in one kernel, and the shards are gathered.
  // Returns the Op as it was stamped, for wait().
  Op all_reduce(Queue& queue, Op op, const TreeOwnership& ownership, std::span<const VecView<const float>> parts,
                float factor, VecView<float> out);

  // Every member's shard (by position) of `values`, to all members, in place. op.kind: all_gather, unless it is
  // publish. In rounds, as the rank's rule says (gather_rule.h); then the Op is the last round's.
  Op all_gather(Queue& queue, Op op, AnyVec values, std::span<const ShardInfo> shards);

  // One collective of the caller's own making: which ranges go to and come from whom (launch ranks). op.kind says what
  // it is; every member takes part, with no pieces too. A param_gather is made in rounds as all_gather is.
  Op exchange(Queue& queue, Op op, std::span<const Piece> pieces);

  // Whether the transport sums the op's parts to their owners itself. Equal on all members.
  bool scatters_natively(const Op& op) const {
    return size() > 1 && library_sums() == LibrarySums::none && rank_.transport.has_native(comm_, op);
  }
  // Where it does: the sum itself.
  Op tree_reduce_scatter(Queue& queue, Op op, const TreeScatter& scatter);

  // Whether sums are a library's, or made by one too. Equal on all members.
  LibrarySums library_sums() const { return size() > 1 ? rank_.transport.library_sums() : LibrarySums::none; }
  // Its sum of all members' values, each share to its member (Transport::library_reduce).
  Op library_reduce(Queue& queue, Op op, VecView<const float> values, std::span<const SumShare> shares);

  // Waits for `event` under the watchdog; on failure the error names `op` (see Rank::wait).
  void wait(const Event& event, const Op& op);

  // Gives up: local, immediate, never fails. Pending operations complete with scribbled buffers.
  void abort();
  // The same of several, in one group: an operation of one may wait on its queue for one of another.
  static void abort_all(Rank& rank, std::span<Communicator* const> all);

 private:
  // Where the subtree roots of this rank's shard arrive, and the kernel's table of which node each of them is.
  struct Arrivals {
    Index leaves = 0;
    Index n = 0;
    Index shard = 0;            // elements of this rank's shard of n
    std::vector<int> parts_of;  // by position
    int count = 0;              // of all members
    int first_own = 0;          // slot of this rank's first part
    BufferPtr table;    // {level | member << 8, index} a slot; the host's, which lists them when it launches the fold
    BufferPtr slots;    // (count, shard)
    BufferPtr library;  // (n), a library's sum of the same; where it is to be compared with ours
    VecView<float> slot(int i) const { return {slots.get(), i * shard, shard}; }
  };

  Op stamp(Op op);  // epoch, rank, axis, next sequence
  void reduce_over_exchange(Queue& queue, const Op& op, const TreeOwnership& ownership,
                            std::span<const VecView<const float>> parts, float factor, VecView<float> out);
  Launcher launcher(Queue& queue, const Op& op) const;
  void reduce_by_library(Queue& queue, const Op& op, std::span<const VecView<const float>> parts, float factor,
                         VecView<float> out);
  void list_pieces(const Arrivals& in, std::span<const VecView<const float>> parts);
  void fold_shard(Launcher& launch, const Op& op, const Arrivals& in, std::span<const VecView<const float>> parts,
                  float factor, VecView<float> out);
  void fold_alone(Launcher& launch, const Op& op, Index leaves, std::span<const VecView<const float>> parts,
                  float factor, VecView<float> out);
  Arrivals& arrivals(const TreeOwnership& ownership, Index n);
  void check(CommResult result, const Op& op);
  void closed();
  void exchange_pieces(Queue& queue, const Op& op, std::span<const Piece> pieces);
  Op gather_pieces(Queue& queue, Op op, std::span<const Piece> pieces);

  Rank& rank_;
  Axis axis_;
  std::uint32_t epoch_;
  std::vector<int> members_;
  int position_ = -1;
  TimeNs timeout_ns_;
  Comm comm_;
  std::uint64_t id_ = 0;
  std::uint64_t sequence_ = 0;        // of collectives
  std::uint64_t launches_ = 0;        // of the folds between them
  std::array<TimeNs, 128> joined_{};  // a ring over sequences
  bool aborted_ = false;
  std::vector<Arrivals> arrivals_;       // one a size of sum; kept, since pending work may refer to them
  std::vector<Piece> pieces_;            // reused from call to call
  std::vector<TreeReduceSlice> slices_;  // likewise
  GatherRounds rounds_;
};

}  // namespace seeksim::runtime
