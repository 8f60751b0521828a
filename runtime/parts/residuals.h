// Residuals: what compression has left out of this rank's groups so far, to be added to their next gradients; and where
// their sum is compressed once more, what that has left out of this rank's part of it. State of the training as weights
// are: a step that is not applied leaves it alone, checkpoints hold it, and where a group is cannot change without it.
#pragma once

#include <string>
#include <vector>

#include "runtime/launch/launcher.h"
#include "runtime/layout/shard.h"
#include "runtime/plan/plan.h"
#include "runtime/seams/seams.h"

namespace seeksim::runtime {

// Whether members of a data axis that were `before` can go on as `members` with state that each has of its own parts of
// a step alone; `what` names the state and its part. Empty: they can, else the first part that would have to move.
std::string part_lost(int parts, const std::vector<int>& before, const std::vector<int>& members, const char* what);

class Residuals {
 public:
  // elements: of a gradient.
  Residuals(Device& device, const CompressionPlan& plan, Index elements)
      : device_(device), plan_(plan), elements_(elements) {}

  // Groups [begin, end) of a member of the data axis.
  static SampleRange groups_of(const CompressionPlan& plan, int members, int position) {
    return samples_of(plan.groups, members, position);
  }

  // For these members of the data axis, of whom this is the one at `position`: memory, and zeroes in it (launched).
  // owned: what it sums, where sums are compressed too. Does nothing where it is laid out for them already.
  void lay_out(Launcher& launch, const std::vector<int>& members, int position, ShardInfo owned = {});
  // Why these members cannot go on with it; empty: it is where they need it, or there is none yet.
  std::string lost(const std::vector<int>& members) const;

  const SampleRange& groups() const { return groups_; }  // that are here
  bool feeds_back() const { return plan_.error_feedback; }
  // The i-th group that is here: what is kept, which is nothing without error feedback; and where a step leaves what it
  // does not send.
  VecView<float> kept(Index i) const;
  VecView<float> next(Index i) const { return part(*buffers_[1 - in_use_], i); }
  // The same of what this rank sums.
  const ShardInfo& owned() const { return owned_; }
  VecView<float> kept_of_sum() const;
  VecView<float> next_of_sum() const { return {sums_[1 - in_use_].get(), 0, owned_.size}; }
  // The step is applied: what it left is what is kept.
  void commit() { in_use_ = 1 - in_use_; }

 private:
  VecView<float> part(Buffer& buffer, Index i) const { return {&buffer, i * elements_, elements_}; }
  void make(Launcher& launch, Index elements, const char* name, std::vector<BufferPtr>& buffers);

  Device& device_;
  const CompressionPlan& plan_;
  Index elements_;
  std::vector<int> members_;
  SampleRange groups_;
  ShardInfo owned_;
  std::vector<BufferPtr> buffers_, sums_;  // two, one of them in use
  std::size_t in_use_ = 0;
};

}  // namespace seeksim::runtime
