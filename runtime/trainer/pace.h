// Pace: what a rank finds out from the votes on steps without a failure: which rank is too slow, and whether the run
// has diverged. All members see the same numbers, and so come to the same finding.
#pragma once

#include <deque>
#include <vector>

#include "runtime/detect/divergence.h"
#include "runtime/detect/straggler.h"
#include "runtime/trainer/commit_vote.h"
#include "runtime/trainer/measurement.h"
#include "runtime/trainer/state_transfer.h"
#include "runtime/trainer/world.h"

namespace seeksim::runtime {

class Pace final : public VoteRider {
 public:
  Pace(Workbench& bench, const World& world, const StateTransfer& transfer);

  // Other members, another cut: what was seen before is no measure.
  void begin_world();
  // A step's vote carries how long this rank's device has computed since the last one.
  void tell(Vote about, Ballot& own) override;
  void hear(Vote about, const Agreement& agreement, bool all_good) override;
  // After a step, which is committed and published, so that none is lost: throws SeamError{too_slow} on all members
  // where one of them is to leave for being so.
  void let_straggler_go();

  // For a step that all voted for, before it is applied. Throws SeamError{diverged}.
  void look_for_divergence(const StepResult& result);
  // The steps that the next one is compared with: a rank that joins has to know them.
  const std::deque<DivergenceMonitor::Step>& window() const { return divergence_.window(); }
  void continue_with(std::deque<DivergenceMonitor::Step> window) { divergence_.continue_with(std::move(window)); }

 private:
  std::vector<BusyStep> busy_steps(const Agreement& agreement);
  StepWork work_of(int position);
  bool can_do_without(int rank, std::vector<int> members) const;

  Workbench& bench_;
  const World& world_;
  const StateTransfer& transfer_;
  StragglerMonitor stragglers_;
  DivergenceMonitor divergence_;
  TimeNs busy_before_ = 0;          // of this rank's device, at the last step's vote
  bool busy_is_of_a_step_ = false;  // what it computes since then is a whole step after an applied one
  std::vector<StepWork> work_;      // of a step, by place on the data axis; as far as it was asked for
  int leaves_ = -1;                 // the rank that is too slow and leaves once the step is committed
};

}  // namespace seeksim::runtime
