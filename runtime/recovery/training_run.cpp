// One rank's way through a run: worlds of members, one after another, and the steps in each. Here is the only catch
// site of the runtime; what is done about a failure stands in recovery.cpp.
#include <algorithm>
#include <exception>
#include <optional>
#include <utility>

#include "kernels/device_table.h"
#include "runtime/checkpoint/checkpoint_reader.h"
#include "runtime/launch/poison.h"
#include "runtime/plan/changes.h"
#include "runtime/plan/mutated_definition.h"
#include "runtime/recovery/joining.h"
#include "runtime/recovery/recovery.h"
#include "runtime/recovery/train.h"
#include "runtime/rules/bugs.h"
#include "runtime/trainer/trainer.h"
#include "runtime/zero/shard_keeper.h"

namespace seeksim::runtime {
namespace {

// What ended an attempt. A failure leaves the catch block before anything is done about it: a fiber that waits inside
// one would swap exceptions with another.
struct Trouble {
  std::optional<SeamError> error;
  std::optional<DiskLost> disk_lost;
  std::optional<std::string> hopeless;
  std::exception_ptr bug;  // ours, or weights that do not fit: nothing to recover from
};

// Whether a planted bug edits the definition, of which a run then needs a copy.
bool edits(const PlantedBug& bug) { return bug.is(Bug::quirk) || edits_definition(bug.mutant); }

class TrainingRun {
 public:
  TrainingRun(Rank& rank, const TrainPlan& given, Observer& observer)
      : rank_(rank),
        own_(given.recovery.memory_ladder || edits(given.bug) ? std::optional(given) : std::nullopt),
        plan_(own_ ? *own_ : given),
        observer_(observer) {
    if (given.bug.is(Bug::quirk)) own_->definition.quirks.add(given.bug.quirk);
    if (edits(given.bug)) mutate(given.bug.mutant, own_->definition);
  }

  TrainOutcome run();
  void copy_weights_to(std::vector<NamedTensor>& weights) {
    if (concluded_ && trainer_->is_lowest_rank()) weights = trainer_->weights();
  }

 private:
  void begin(const Seats& seats);
  std::optional<TrainOutcome> attempt();
  std::optional<TrainOutcome> join();
  std::optional<TrainOutcome> recover();
  std::optional<TrainOutcome> begin_world();
  bool train_in_world(std::optional<TrainOutcome>& over);
  std::optional<TrainOutcome> after(Trouble& trouble);
  void make_anew(const Layout& layout);
  std::optional<std::int64_t> change_to_undo() const;
  void go_back();
  int first_who_knows(const std::vector<int>& members) const;
  TrainOutcome ends(Ending how, std::string why) const {
    return {how, std::move(why), trainer_->step(), trainer_->state()};
  }
  TrainOutcome leaves(Ending how, std::string why);
  std::optional<TrainOutcome> waits_or(TrainOutcome over);

  Rank& rank_;
  // The ladder changes the layout, a planted quirk or mutant the definition; others need no plan of their own, which
  // may hold a text.
  std::optional<TrainPlan> own_;
  const TrainPlan& plan_;
  Observer& observer_;
  bool member_ = false;  // else it waits to be taken in
  std::optional<Trainer> trainer_;
  std::optional<Recovery> recovery_;
  std::optional<SeamError> failure_;           // to recover from
  bool goes_back_ = false, diverged_ = false;  // the next world begins with a checkpoint; because of what was found
  std::int64_t reached_ = 0;                   // steps, before a failure
  bool concluded_ = false;
};

TrainOutcome TrainingRun::run() {
  const Seats seats = launch_seats(plan_, rank_.world_size);
  member_ = rank_.incarnation == 0 && seats.of(rank_.id) >= 0;
  if (member_) {
    recovery_.emplace(rank_, plan_, observer_, seats);
    trainer_.emplace(rank_, plan_, observer_, recovery_->world());
    observer_.layout(rank_.id, plan_.layout);
  }
  for (;;) {
    std::optional<TrainOutcome> over;
    Trouble trouble;
    try {
      over = attempt();
    } catch (const SeamError& error) {
      trouble.error.emplace(error);
    } catch (const kernels::DeviceError& error) {  // from a call by the host itself: a copy, poison
      Op op;
      op.rank = rank_.id;
      trouble.error.emplace(error.out_of_memory ? ErrorKind::out_of_memory : ErrorKind::device_lost, op, error.what());
    } catch (const DiskLost& lost) {
      trouble.disk_lost.emplace(lost);
    } catch (const UnwrittenMemory& found) {
      trouble.hopeless = found.what();
    } catch (const StaleFiles& found) {
      trouble.hopeless = found.what();
    } catch (const NoCheckpoint& found) {
      trouble.hopeless = found.what();
    } catch (const std::exception&) {
      trouble.bug = std::current_exception();
    }
    if (!over) over = after(trouble);
    if (over) return *over;
  }
}

// As far as it goes. Nothing: there is another attempt to make.
std::optional<TrainOutcome> TrainingRun::attempt() {
  goes_back_ = diverged_ = false;
  if (!member_) {
    if (auto over = join()) return over;
  } else if (failure_) {
    if (auto over = recover()) return waits_or(*over);
  }
  for (;;) {
    if (auto over = begin_world()) return over;
    std::optional<TrainOutcome> over;
    if (!train_in_world(over)) continue;
    if (over) return waits_or(*over);
    trainer_->conclude();
    concluded_ = true;
    if (!trainer_->finished()) return ends(Ending::stopped, trainer_->stopped());
    return ends(Ending::finished, "");
  }
}

std::optional<TrainOutcome> TrainingRun::join() {
  trainer_.reset();
  const std::optional<HandOver> given = wait_to_join(rank_, plan_);
  if (!given) return TrainOutcome{Ending::spare, "it was not needed", 0, {}};
  recovery_.emplace(rank_, plan_, observer_, given->world.seats);
  recovery_->begin_as_joiner(given->joiners);
  trainer_.emplace(rank_, plan_, observer_, given->world);
  observer_.layout(rank_.id, plan_.layout);
  trainer_->prepare();
  trainer_->take_over(*given);
  member_ = true;
  return std::nullopt;
}

std::optional<TrainOutcome> TrainingRun::recover() {
  std::optional<TrainOutcome> over = recovery_->recover(*std::exchange(failure_, std::nullopt), *trainer_);
  if (!over && recovery_->gives_first()) over = recovery_->give_first(*trainer_);
  if (over) return over;
  reached_ = std::max(reached_, trainer_->step());
  diverged_ = recovery_->diverged();
  goes_back_ = plan_.recovery.policy == RecoveryPolicy::restart_from_checkpoint || trainer_->loads() || diverged_;
  if (const std::optional<Layout> layout = recovery_->take_layout()) make_anew(*layout);
  return std::nullopt;
}

// Connects the members, each with all that it has to hold. An outcome: they cannot go on.
std::optional<TrainOutcome> TrainingRun::begin_world() {
  const Roster world = recovery_->world();
  const std::vector<int>& joiners = recovery_->joiners();
  std::string lost = trainer_->lost(world, joiners, world.members);
  if (goes_back_ || (!lost.empty() && plan_.checkpoint.on() && !trainer_->joining())) {
    if (const std::string why = recovery_->going_back(); !why.empty())
      return ends(Ending::stopped, why + (lost.empty() ? "" : "; " + lost));
    go_back();
    lost = trainer_->lost(world, joiners, world.members);
  }
  if (!lost.empty()) return ends(Ending::stopped, lost);
  if (trainer_->serves_others_in(world)) {  // with nothing committed: all is made anew
    trainer_.reset();
    trainer_.emplace(rank_, plan_, observer_, world);
  }
  const bool loads = trainer_->loads();
  trainer_->prepare();
  if (!joiners.empty() && !trainer_->joining()) {
    const bool tells = rank_.id == first_who_knows(world.members);
    hand_over(rank_, plan_, tells ? std::optional(trainer_->hand_over(world, joiners)) : std::nullopt);
  }
  trainer_->connect(rank_.control.epoch(), world, joiners);
  goes_back_ = diverged_ = false;
  if (loads) recovery_->went_back(reached_, trainer_->step());
  reached_ = trainer_->step();
  recovery_->rebuilt();
  return std::nullopt;
}

// False: another world begins. True: it was the last one, for all, or, with an outcome, for this rank.
bool TrainingRun::train_in_world(std::optional<TrainOutcome>& over) {
  while (!trainer_->finished() && trainer_->stopped().empty()) {
    trainer_->train_step();
    recovery_->step_committed(trainer_->step());
    trainer_->let_straggler_go();
    if (trainer_->finished() || !trainer_->world_may_change()) continue;
    if (recovery_->change_world(*trainer_, over)) return false;
    if (over) return true;
  }
  return true;
}

// Gives up what is under way and reports what this rank holds; nothing, where the device does not answer.
TrainOutcome TrainingRun::leaves(Ending how, std::string why) {
  if (trainer_->abandon()) return ends(how, std::move(why));
  return {how, std::move(why) + "; its device does not answer", trainer_->step(), {}};
}

// What follows from what was caught.
std::optional<TrainOutcome> TrainingRun::after(Trouble& trouble) {
  if (trouble.bug) {
    if (trainer_) trainer_->abandon();  // nothing may be pending when buffers go
    std::rethrow_exception(trouble.bug);
  }
  if (trouble.hopeless) return leaves(Ending::stopped, *trouble.hopeless);
  if (trouble.disk_lost) {  // the others find that this rank does not answer
    const SeamError& error = trouble.disk_lost->error;
    rank_.control.revoke(rank_.control.epoch(), error.op(), error.kind());
    return leaves(Ending::evicted, "its disk is lost; its peers' copies are used instead: " + error.detail());
  }
  if (!trouble.error) return std::nullopt;
  const SeamError& error = *trouble.error;
  const bool holds_nothing = !trainer_ || trainer_->joining();  // nothing that others could use
  const bool fenced = error.kind() == ErrorKind::fenced;
  if (holds_nothing || (fenced && plan_.recovery.grow)) {  // begins anew, as another incarnation
    if (trainer_ && !trainer_->abandon())
      return TrainOutcome{Ending::evicted, "its device does not answer: " + error.detail(), trainer_->step(), {}};
    member_ = false;
    return std::nullopt;
  }
  if (fenced) return leaves(Ending::evicted, "the others declared this rank dead and continued: " + error.detail());
  if (error.kind() == ErrorKind::diverged && plan_.recovery.divergence.rollback_steps == 0 && !change_to_undo())
    return leaves(Ending::stopped, "diverged: " + error.detail());
  if (error.kind() == ErrorKind::device_lost) {  // the process cannot go on; the others find that it is gone
    rank_.control.revoke(rank_.control.epoch(), error.op(), error.kind());
    trainer_->abandon();
    return TrainOutcome{Ending::evicted, "its device is lost: " + error.detail(), trainer_->step(), {}};
  }
  failure_ = std::move(trouble.error);
  return std::nullopt;
}

// After a failure for want of memory: with nothing committed all is made anew, in whatever layout; else only what is
// not durable. Nothing is pending here.
void TrainingRun::make_anew(const Layout& layout) {
  const bool nothing_committed = trainer_->step() == 0;
  if (nothing_committed)
    trainer_.reset();  // before the next one takes any memory
  else
    trainer_->free_activations();
  if (own_) own_->layout = layout;
  if (nothing_committed) trainer_.emplace(rank_, plan_, observer_, recovery_->world());
  observer_.layout(rank_.id, plan_.layout);
}

// The step of the change that a divergence in the step under way undoes.
std::optional<std::int64_t> TrainingRun::change_to_undo() const {
  return runtime::change_to_undo(plan_, trainer_->undone_changes(), trainer_->step());
}

// Gives up all that this rank holds: the next trainer begins with a checkpoint. After a divergence with one before it,
// and without what led there: the last change of the configuration, or batches.
void TrainingRun::go_back() {
  const DivergencePlan& divergence = plan_.recovery.divergence;
  std::int64_t most = trainer_->loads() ? trainer_->loads_at_most() : trainer_->step();
  const std::optional<std::int64_t> change = diverged_ ? change_to_undo() : std::nullopt;
  const bool by_batches = diverged_ && !change;
  if (change) most = std::min(most, *change);
  if (by_batches) most = std::max<std::int64_t>(most - divergence.rollback_steps, 0);
  const std::vector<std::int64_t> dropped = trainer_->dropped_batches();
  std::vector<std::int64_t> undone = trainer_->undone_changes();
  if (change) undone.push_back(*change);
  trainer_->remove_files();
  trainer_.reset();
  trainer_.emplace(rank_, plan_, observer_, recovery_->world());
  trainer_->begin_with_checkpoint(most);
  trainer_->leave_out(dropped, by_batches ? divergence.drop_batches : 0);
  trainer_->undo_changes(undone);
  observer_.layout(rank_.id, plan_.layout);
}

// Where the run stands: the lowest member that did not just join.
int TrainingRun::first_who_knows(const std::vector<int>& members) const {
  const std::vector<int>& joiners = recovery_->joiners();
  return *std::find_if(members.begin(), members.end(),
                       [&](int rank) { return !std::binary_search(joiners.begin(), joiners.end(), rank); });
}

// A rank that is left over may be of use again, in a run that admits ranks.
std::optional<TrainOutcome> TrainingRun::waits_or(TrainOutcome over) {
  if (!recovery_->left_over() || !takes_in(plan_.recovery)) return over;
  member_ = false;
  return std::nullopt;
}

}  // namespace

TrainOutcome train(Rank& rank, const TrainPlan& plan, Observer& observer, std::vector<NamedTensor>* final_weights) {
  TrainingRun run(rank, plan, observer);
  TrainOutcome outcome = run.run();
  if (final_weights != nullptr) run.copy_weights_to(*final_weights);
  return outcome;
}

}  // namespace seeksim::runtime
