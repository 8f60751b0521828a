// Trainer: one rank's share of a training run. train_step is a transaction: before its commit point nothing durable
// changes, so that a step which failed anywhere is simply run again, by the same members or by fewer. The trainer owns
// the parts that a step is made of (README.md), and calls them in order.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/comm/communicator.h"
#include "runtime/decide/membership.h"
#include "runtime/detect/observer.h"
#include "runtime/plan/changes.h"
#include "runtime/plan/plan.h"
#include "runtime/seams/rank.h"
#include "runtime/trainer/commit_vote.h"
#include "runtime/trainer/evaluation.h"
#include "runtime/trainer/final_state.h"
#include "runtime/trainer/measurement.h"
#include "runtime/trainer/pace.h"
#include "runtime/trainer/passes.h"
#include "runtime/trainer/records.h"
#include "runtime/trainer/reduction.h"
#include "runtime/trainer/saves.h"
#include "runtime/trainer/state_transfer.h"
#include "runtime/trainer/tensors.h"
#include "runtime/trainer/whole_tensors.h"
#include "runtime/trainer/workbench.h"
#include "runtime/trainer/world.h"

namespace seeksim::runtime {

class Trainer {
 public:
  // world: the first one that it is connected to; its seats decide which part of the model is here.
  Trainer(Rank& rank, const TrainPlan& plan, Observer& observer, const Roster& world);

  // Allocates what no world changes and makes the initial weights; no communication. Does nothing the second time.
  void prepare();
  // Why a world cannot go on with what `givers` hold, of whom joiners hold nothing; empty: it can.
  std::string lost(const Roster& world, const std::vector<int>& joiners, const std::vector<int>& givers) const {
    return transfer_.lost(world, joiners, givers);
  }
  bool holds_shards() const { return transfer_.holds_shards(); }
  // A new communicator for `epoch` and a new cut of the batch; shards, and all that joiners lack, come from those who
  // hold them. The step under way, if any, starts anew.
  void connect(std::uint32_t epoch, const Roster& world, const std::vector<int>& joiners);
  // Whether, with nothing committed, that world gives this rank other workers than it has made (LocalSgdPlan).
  bool serves_others_in(const Roster& world) const;
  void train_step();
  // After a step: throws SeamError{too_slow} on all members where one of them is to leave for being so.
  void let_straggler_go() { pace_.let_straggler_go(); }
  // After the last step: gathers what is sharded for state() and weights(), and lets no rank leave before all have it.
  void conclude();
  // After a failure: gives up the communicator and waits until nothing is pending. Leaves what is durable untouched.
  // False: the device does not answer, and this rank cannot go on.
  bool abandon();
  // After abandon(): gives back all memory that holds nothing durable. prepare() and connect() make it again, as the
  // plan's layout says then.
  void free_activations();

  bool finished() const { return bench_.progress.finished(); }
  std::int64_t step() const { return bench_.progress.step(); }  // the next to be committed
  // Why the run has to end here though nothing failed: nothing but skipped steps. Empty: it goes on. The same on all.
  std::string stopped() const { return bench_.progress.stopped(); }
  // Fewer activations would leave more memory: some were made, or failed to be.
  bool holds_activations() const { return passes_.holds_activations(); }
  std::vector<Communicator*> communicators();  // that are there: of the data axis first
  bool is_lowest_rank() const { return world_.is_lowest_rank(); }

  // The first world begins with the newest checkpoint that can be used and holds at most so many steps; where there
  // never was one, from the beginning. Throws NoCheckpoint in connect() where there are some, and all are bad.
  void begin_with_checkpoint(std::int64_t steps_most) { saves_.begin_with(steps_most); }
  // Batches to leave out after a restart from a checkpoint: those known bad, and `more` from the first undone step on.
  void leave_out(const std::vector<std::int64_t>& batches, std::int64_t more) {
    bench_.progress.leave_out(batches, more);
  }
  const std::vector<std::int64_t>& dropped_batches() const { return bench_.progress.dropped_batches(); }
  // Changes of the configuration that were rolled back.
  void undo_changes(const std::vector<std::int64_t>& steps) { bench_.progress.undo_changes(steps); }
  const std::vector<std::int64_t>& undone_changes() const { return bench_.progress.undone_changes(); }
  bool loads() const { return saves_.loads(); }  // that is still to be done
  std::int64_t loads_at_most() const { return saves_.loads_at_most(); }
  // Before another trainer takes its place: removes the files that hold offloaded state.
  void remove_files();

  // Members come and go without a failure. True where, in the last vote, a rank waited or a member had notice to leave,
  // so that there is a better world than this one.
  bool world_may_change() const;
  // All vote, and so leave the step behind them: the world that the ballots ask for, this one where they ask for none.
  NextWorld agree_on_world();
  // Over the communicators of this epoch: shards to where they are in a world without some of its members.
  void give_shards_to(const Roster& next) { transfer_.give_to(next); }
  // The same in an epoch of its own, which all living ranks have entered; nothing is connected before.
  void give_shards_first(std::uint32_t epoch, const Roster& all, const Roster& next);
  void leave();  // in order: it has nothing any more that others need
  HandOver hand_over(const Roster& world, const std::vector<int>& joiners) const;
  void take_over(const HandOver& given);                // of a rank that joins, after prepare()
  bool joining() const { return transfer_.joining(); }  // it has been taken in, and does not have the others' state yet

  // Digests of what is sharded are there after conclude() only.
  StateDigest state() const { return final_.state(transfer_.published()); }
  std::vector<NamedTensor> weights() const { return final_.weights(); }

 private:
  // What all members made of a step.
  struct Verdict {
    bool all_good = false;  // no member saw an overflow, or wanted the step left out
    bool applies = false;   // this rank updates
    bool updates = false;   // some rank does, so that parameters are published
  };
  Verdict agree_on(const StepResult& result);
  InForce in_force() const;
  double rate() const;
  void speculate();
  float apply(const StepResult& result, double lr);
  float apply(float norm, double lr);
  void meet();
  void commit(const StepResult& result, bool applied, double lr);
  void agree_on_amaxes();
  std::vector<float> agreed_amaxes(bool applied);
  void allocate();
  NextWorld wanted_world() const;

  Workbench bench_;
  Tensors tensors_;
  World world_;
  CommitVote vote_;
  Reduction reduction_;
  Passes passes_;
  Evaluation evaluation_;
  Measurement measurement_;
  WholeTensors whole_;
  Records records_;
  Saves saves_;
  StateTransfer transfer_;
  Pace pace_;
  FinalState final_;
  bool drawn_ = false;  // prepare() came to its end once
};

}  // namespace seeksim::runtime
