// What the trainer finds out from its own votes, without a failure: who is too slow, and whether the run has diverged.
#include <algorithm>
#include <utility>

#include "runtime/trainer/trainer.h"

namespace seeksim::runtime {

// What the vote of a step carries of this rank's time.
TimeNs Trainer::busy_since_last_step() {
  const TimeNs now = rank_.device.busy_ns();
  return now - std::exchange(busy_before_, now);
}

// The first step of a world holds its making, too, and a step after a skipped one lacks an update: only steps with the
// same work are held against each other.
void Trainer::look_for_stragglers(const Agreement& agreement, bool applied) {
  const StragglerPlan& plan = plan_.recovery.straggler;
  if (!plan.on) return;
  if (!std::exchange(busy_is_of_a_step_, applied)) return;
  std::vector<BusyStep> steps;
  for (std::size_t i = 0; i < agreement.members.size(); ++i) {
    const std::optional<GridPlace> place = grid_->place(agreement.members[i]);
    if (!place) continue;
    const int part = place->stage * plan_.layout.parallel.tensor + place->way;
    steps.push_back({agreement.members[i], part, work_of(place->data), agreement.ballots[i].busy_ns});
  }
  const std::vector<Straggler> found = stragglers_.look(steps);
  if (rank_.id == steps.front().rank) {
    std::vector<int> ranks;
    for (const BusyStep& step : steps) ranks.push_back(step.rank);
    observer_.scores(step_, ranks, stragglers_.scores());
  }
  for (const Straggler& one : found) {
    StragglerRecord record{step_, one.rank, one.score, one.steps, false};
    if (leaves_ < 0 && can_do_without(one.rank, agreement.members)) {
      leaves_ = one.rank;
      record.leaves = true;
    }
    observer_.straggler(rank_.id, record);
  }
}

StepWork Trainer::work_of(int position) {
  if (work_.empty()) work_.resize(std::size_t(grid_->replicas()));
  StepWork& work = work_[std::size_t(position)];
  if (work.micro_batches > 0) return work;
  for (const SampleRange& samples : micro_batches_of(position)) {
    work.samples += samples.size();
    ++work.micro_batches;
  }
  return work;
}

// Decided by all members alike: who is too slow leaves only where the others can go on, and something is left to do.
bool Trainer::can_do_without(int rank, std::vector<int> members) const {
  const RecoveryPlan& plan = plan_.recovery;
  const bool rebuilds = plan.policy == RecoveryPolicy::rebuild_and_redo;  // a checkpoint would cost steps
  if (!plan.straggler.evict || !rebuilds || step_ + 1 >= plan_.definition.steps) return false;
  std::erase(members, rank);
  if (members.empty() || int(members.size()) < plan.ranks_min) return false;
  const NextWorld next = next_world(plan_.layout.parallel, seats_, members, {});
  return next.problem.empty() && lost(next.roster, {}, members).empty();
}

// The step is committed and published, so none is lost. All members come here.
void Trainer::let_straggler_go() {
  if (leaves_ < 0) return;
  Op op = commit_op(OpKind::compute, "straggler", step_ - 1, SEEKSIM_SITE);
  op.peer = std::exchange(leaves_, -1);
  throw SeamError(ErrorKind::too_slow, op, "rank " + std::to_string(op.peer) + " is too slow, and leaves");
}

// Of a step that all voted for, before it is applied: nothing has changed yet.
void Trainer::look_for_divergence(const StepResult& result) {
  const DivergencePlan& plan = plan_.recovery.divergence;
  if (!plan.on || !has_values()) return;
  const std::optional<Divergence> found = divergence_.look(step_, double(result.loss), double(result.grad_norm));
  if (!found) return;
  observer_.diverged(rank_.id, {found->step, found->what, found->value, found->mean});
  const Op op = commit_op(OpKind::vote, "divergence", step_, SEEKSIM_SITE);
  throw SeamError(ErrorKind::diverged, op, text(*found, plan));
}

void Trainer::leave_out(const std::vector<std::int64_t>& batches, std::int64_t more) {
  left_out_ = batches;
  leaves_out_more_ = more;
}

// The state of a checkpoint is there. What it does not know of yet stays left out all the same.
void Trainer::drop_left_out() {
  for (std::int64_t i = 0; i < leaves_out_more_; ++i) left_out_.push_back(batch_of_step(dropped_batches_, step_ + i));
  leaves_out_more_ = 0;
  dropped_batches_.insert(dropped_batches_.end(), left_out_.begin(), left_out_.end());
  std::sort(dropped_batches_.begin(), dropped_batches_.end());
  dropped_batches_.erase(std::unique(dropped_batches_.begin(), dropped_batches_.end()), dropped_batches_.end());
}

}  // namespace seeksim::runtime
