// Recovery: what happens when a seam throws, and when the members change without a failure. The decisions (decision.h,
// membership.h) are pure functions of an agreement that all share, so that all ranks decide alike.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/decide/decision.h"
#include "runtime/decide/membership.h"
#include "runtime/decide/memory_ladder.h"
#include "runtime/detect/diagnosis.h"
#include "runtime/detect/observer.h"
#include "runtime/recovery/joining.h"
#include "runtime/recovery/train.h"
#include "runtime/trainer/trainer.h"

namespace seeksim::runtime {

class Recovery {
 public:
  Recovery(Rank& rank, const TrainPlan& plan, Observer& observer, Seats seats)
      : rank_(rank), train_(plan), plan_(plan.recovery), observer_(observer), seats_(std::move(seats)) {}

  // The world that is to be connected: the control plane's members on their seats.
  Roster world() const { return {rank_.control.members(), seats_}; }
  const std::vector<int>& joiners() const { return joiners_; }

  // Puts what this rank saw on the table, agrees with the others and prepares the next epoch. An outcome: this rank's
  // run is over.
  std::optional<TrainOutcome> recover(const SeamError& failure, Trainer& trainer);
  // The last recovery left members over that hold shards. All have entered an epoch in which these give them to the
  // others, which then enter the epoch that they go on in.
  bool gives_first() const { return gives_first_; }
  std::optional<TrainOutcome> give_first(Trainer& trainer);
  // After a commit in whose vote a rank waited or was to leave: all agree on the next world, leaving ranks give their
  // shards away, and the others enter the next epoch. True: there is a new world to connect.
  bool change_world(Trainer& trainer, std::optional<TrainOutcome>& over);
  // This rank's outcome is that the others make whole replicas without it: there is nothing wrong with it.
  bool left_over() const { return left_over_; }
  // The layout to go on with, where the last recovery was about memory: what is not durable is to be made anew, even
  // when it is the layout in use. Gives it once.
  std::optional<Layout> take_layout();
  // The last recovery was about that.
  bool diverged() const { return !pending_.empty() && pending_.back().diagnosis.verdict == Verdict::diverged; }
  void begin_as_joiner(std::vector<int> joiners) { joiners_ = std::move(joiners); }
  void rebuilt();                           // the new communicator stands
  void step_committed(std::int64_t steps);  // so many have made it
  // Whether this rank shall go on from a checkpoint once more; why not, where it has done so too often without getting
  // any further.
  std::string going_back();
  void went_back(std::int64_t from, std::int64_t to);  // steps

 private:
  TimeNs grace() const;
  void take_places(const Agreement& agreement, const Trainer& trainer, Decision& decision);
  void enter(std::uint32_t epoch, const NextWorld& next, std::int64_t step);
  void spare_last_holders(const Agreement& agreement, const Trainer& trainer, Decision& decision) const;
  Ballot ballot(const SeamError& failure, Trainer& trainer, TimeNs detected) const;
  void choose_layout(const Shortage& shortage, const Trainer& trainer, Decision& decision, RecoveryRecord& record);

  Rank& rank_;
  const TrainPlan& train_;  // its layout is the one in use
  const RecoveryPlan& plan_;
  Observer& observer_;
  Seats seats_;
  std::vector<int> joiners_;
  NextWorld next_;  // of a recovery that goes on
  bool left_over_ = false;
  std::string left_over_why_;
  bool gives_first_ = false;
  std::vector<FailedAttempt> history_;
  std::vector<RecoveryRecord> pending_;  // not yet followed by a committed step
  std::int64_t furthest_ = 0;            // steps that were ever committed
  int times_back_ = 0;                   // since that was reached
  int tries_ = 0;                        // since the last commit, also those that came to no decision
  std::optional<Layout> next_layout_;
  bool tried_again_ = false;        // the layout in use, since the last commit
  std::vector<std::string> rungs_;  // of the memory ladder, since the last commit
};

}  // namespace seeksim::runtime
