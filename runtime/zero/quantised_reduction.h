// QuantisedReduction: a bucket of gradients to its owners in few bits (ZeRO++'s qgZ). What each group of samples adds
// is quantised where it was made. Where a group's sum with its neighbours is quantised too, those that made them add up
// a part each, for some of the owners, and send on what the sum is worth: two exchanges, in place of one. Groups belong
// to the plan, so who adds up what leaves no trace.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "runtime/comm/communicator.h"
#include "runtime/layout/partition.h"
#include "runtime/zero/code_wire.h"
#include "runtime/zero/gradient_buckets.h"

namespace seeksim::runtime {

class QuantisedReduction {
 public:
  QuantisedReduction(Rank& rank, const Parameters& parameters, const TrainPlan& plan, Launcher& launch)
      : rank_(rank), parameters_(parameters), bug_(plan.bug), launch_(launch), codes_(parameters, plan) {}

  // A new world. Allocates what depends on it.
  void connect(Communicator& comm, const Partition& partition, const StepCut& cut, std::span<const Bucket> buckets);

  // The nodes that the samples of the k-th reduction add up to. Sums that are complete only after a later reduction are
  // rounded by the owner, where it keeps nodes in between.
  std::vector<kernels::TreeNode> roots(int k) const;
  // What they are rounded to: nodes of reduced gradients, from element `begin` of these on.
  std::vector<NodeRounding> rounding_between(Index begin) const;

  // parts: of this member's groups of the k-th reduction, in order, the bucket's elements. out: where the sum of a root
  // of roots(k), by number, and of an owned range goes, which begins with element `at` of all that is owned of the
  // bucket. Enqueued; returns the Op to wait for.
  using Out = std::function<VecView<float>(std::size_t root, const OwnedRange& range, Index at)>;
  Op reduce(int k, Op op, const Bucket& bucket, std::span<const VecView<const float>> parts, float factor,
            const Out& out);

 private:
  // Groups [begin, end), or sums of groups.
  using Numbers = SampleRange;
  // A sum of groups of one owner's elements, which is made here.
  struct Sum {
    Index number = 0;
    int owner = 0;
    Index at = 0;       // bytes of its first group among those that arrive
    Index stride = 0;   // of a group
    Index sent_at = 0;  // of what it is worth, where it goes on
  };
  Numbers groups_of(int k, int member) const;
  Numbers window(int k) const;
  int holder(int k, Index group) const;
  std::vector<int> makers(int k, Index sum) const;
  std::vector<int> owners_here(const std::vector<int>& makers) const;
  std::vector<OwnedRange> coded(int member, const Bucket& bucket) const;
  static Index bytes(const CodeWire& wire, const std::vector<OwnedRange>& ranges);
  void allocate(std::span<const Bucket> buckets);

  void begin(int k, const Bucket& bucket);
  void quantise(std::span<const VecView<const float>> parts);
  void list_first_way(std::span<const VecView<const float>> parts);
  void bring(Index group, int holder, int owner, int to);
  VecView<std::byte> arrival(Index group, int owner) const;
  void add_up_groups();
  void list_second_way();
  void lose_last_scale();
  void fold(float factor, const Out& out);
  void fold_loss(Numbers groups, float factor, VecView<float> sum);
  void average_over_nodes_only(const OwnedRange& range, VecView<float> sum);
  void add_piece(int member, bool send, const Range& range);

  Rank& rank_;
  const Parameters& parameters_;
  PlantedBug bug_;
  Launcher& launch_;
  GradientCodes codes_;

  // Made by connect().
  Communicator* comm_ = nullptr;
  const Partition* partition_ = nullptr;
  StepCut cut_;
  bool two_ways_ = false;
  std::vector<kernels::WireRun> own_runs_;  // of this member's reduced gradients
  struct Buffers {
    BufferPtr own;       // groups that are here, whole buckets
    BufferPtr groups;    // groups of the sums that are made here
    BufferPtr values;    // such a sum
    BufferPtr sums;      // what they are worth, on their way to other owners
    BufferPtr arrivals;  // this member's elements of all groups, or of all sums
    BufferPtr losses;    // of all groups
  } memory_;

  // Of the bucket under way.
  struct UnderWay {
    int k = 0;
    Bucket bucket;
    Index lo = 0, size = 0;         // of the bucket, without the loss
    Index byte = 0, bytes = 0;      // of that on the wire of a group
    std::vector<OwnedRange> owned;  // with the loss
    std::vector<OwnedRange> mine;   // without
    Index stride = 0;               // bytes of these, of a group or (in two ways) of a sum
    Numbers groups;                 // of the reduction
    std::vector<Sum> sums;          // that are made here
  } now_;
  std::vector<Piece> pieces_;
};

}  // namespace seeksim::runtime
