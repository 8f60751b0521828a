// Recovery: what happens when a seam throws. The decision is a pure function of an agreement that all survivors share,
// so that nobody needs to be told what to do.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "runtime/diagnosis.h"
#include "runtime/memory_ladder.h"
#include "runtime/observer.h"
#include "runtime/train.h"
#include "runtime/trainer.h"

namespace seeksim::runtime {

// A recovery that came to a decision, as all survivors remember it.
struct FailedAttempt {
  std::int64_t step = 0;
  Diagnosis diagnosis;
};

struct Decision {
  bool stop = false;
  std::string why;             // of stopping, or of an eviction
  std::vector<int> evicted;    // dead or excluded, ascending
  std::vector<int> survivors;  // ascending
};

// history: earlier attempts, oldest first. Depends on nothing but its arguments.
Decision decide(const RecoveryPlan& plan, const Agreement& agreement, const Diagnosis& diagnosis, std::int64_t step,
                const std::vector<FailedAttempt>& history);

// The rank to evict for a link that fails again: the one end that all accused links share, else the sender's.
int rank_to_evict(const std::vector<std::pair<int, int>>& links);

class Recovery {
 public:
  Recovery(Rank& rank, const TrainPlan& plan, Observer& observer)
      : rank_(rank), train_(plan), plan_(plan.recovery), observer_(observer) {}

  // Puts what this rank saw on the table, agrees with the others and prepares the next epoch. An outcome: this rank's
  // run is over.
  std::optional<TrainOutcome> recover(const SeamError& failure, Trainer& trainer);
  // The layout to go on with, where the last recovery was about memory: what is not durable is to be made anew, even
  // when it is the layout in use. Gives it once.
  std::optional<Layout> take_layout();
  // The last recovery was about that.
  bool diverged() const { return !pending_.empty() && pending_.back().diagnosis.verdict == Verdict::diverged; }
  void rebuilt();                           // the new communicator stands
  void step_committed(std::int64_t steps);  // so many have made it
  // Whether this rank shall go on from a checkpoint once more; why not, where it has done so too often without getting
  // any further.
  std::string going_back();
  void went_back(std::int64_t from, std::int64_t to);  // steps

 private:
  TimeNs grace() const;
  void take_places(Decision& decision) const;
  void spare_last_holders(const Agreement& agreement, const Trainer& trainer, Decision& decision) const;
  Ballot ballot(const SeamError& failure, Trainer& trainer, TimeNs detected) const;
  void choose_layout(const Shortage& shortage, const Trainer& trainer, Decision& decision, RecoveryRecord& record);

  Rank& rank_;
  const TrainPlan& train_;  // its layout is the one in use
  const RecoveryPlan& plan_;
  Observer& observer_;
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
