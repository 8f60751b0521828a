#include "runtime/trainer/pace.h"

#include <algorithm>
#include <utility>

#include "runtime/plan/changes.h"

namespace seeksim::runtime {

Pace::Pace(Workbench& bench, const World& world, const StateTransfer& transfer)
    : bench_(bench),
      world_(world),
      transfer_(transfer),
      stragglers_(bench.plan.recovery.straggler),
      divergence_(bench.plan.recovery.divergence) {}

void Pace::begin_world() {
  stragglers_.begin_world();
  busy_is_of_a_step_ = false;
  work_.clear();
  leaves_ = -1;
}

void Pace::tell(Vote about, Ballot& own) {
  if (about != Vote::step) return;
  const TimeNs now = bench_.rank.device.busy_ns();
  own.busy_ns = now - std::exchange(busy_before_, now);
}

// The first step of a world holds its making, too, and a step after a skipped one lacks an update: only steps with the
// same work are compared.
void Pace::hear(Vote about, const Agreement& agreement, bool all_good) {
  if (about != Vote::step || !bench_.plan.recovery.straggler.on) return;
  if (!std::exchange(busy_is_of_a_step_, all_good)) return;
  const std::int64_t step = bench_.progress.step();
  const std::vector<BusyStep> steps = busy_steps(agreement);
  const std::vector<Straggler> found = stragglers_.look(steps);
  if (bench_.rank.id == steps.front().rank) {
    std::vector<int> ranks;
    for (const BusyStep& busy : steps) ranks.push_back(busy.rank);
    bench_.observer.scores(step, ranks, stragglers_.scores());
  }
  for (const Straggler& one : found) {
    StragglerRecord record{step, one.rank, one.score, one.steps, false};
    if (leaves_ < 0 && can_do_without(one.rank, agreement.members)) {
      leaves_ = one.rank;
      record.leaves = true;
    }
    bench_.observer.straggler(bench_.rank.id, record);
  }
}

std::vector<BusyStep> Pace::busy_steps(const Agreement& agreement) {
  std::vector<BusyStep> steps;
  for (std::size_t i = 0; i < agreement.members.size(); ++i) {
    const int rank = agreement.members[i];
    if (const std::optional<GridPlace> place = world_.grid().place(rank))
      steps.push_back({rank, world_.part_of(*place), work_of(world_.share_of(*place)), agreement.ballots[i].busy_ns});
  }
  return steps;
}

StepWork Pace::work_of(int position) {
  if (work_.empty()) work_.resize(std::size_t(world_.shares()));
  StepWork& work = work_[std::size_t(position)];
  if (work.micro_batches > 0) return work;
  for (const SampleRange& samples : world_.micro_batches_of(position)) {
    work.samples += samples.size();
    ++work.micro_batches;
  }
  return work;
}

// Decided by all members alike: a rank that is too slow leaves only where the others can go on, and something is left
// to do.
bool Pace::can_do_without(int rank, std::vector<int> members) const {
  const RecoveryPlan& plan = bench_.plan.recovery;
  const bool rebuilds = plan.policy == RecoveryPolicy::rebuild_and_redo;  // a checkpoint would cost steps
  const bool last_step = bench_.progress.step() + 1 >= bench_.definition().steps;
  if (!plan.straggler.evict || !rebuilds || last_step) return false;
  std::erase(members, rank);
  if (members.empty() || int(members.size()) < plan.ranks_min) return false;
  const NextWorld next = next_world(bench_.plan.layout.parallel, world_.seats(), members, {});
  return next.problem.empty() && transfer_.lost(next.roster, {}, members).empty();
}

void Pace::let_straggler_go() {
  if (leaves_ < 0) return;
  Op op = bench_.op(OpKind::compute, Phase::commit, "straggler", SEEKSIM_SITE);
  op.epoch = world_.epoch();
  --op.step;
  op.peer = std::exchange(leaves_, -1);
  throw SeamError(ErrorKind::too_slow, op, "rank " + std::to_string(op.peer) + " is too slow and leaves");
}

void Pace::look_for_divergence(const StepResult& result) {
  const DivergencePlan& plan = bench_.plan.recovery.divergence;
  if (!plan.on || !bench_.has_values()) return;
  const std::int64_t step = bench_.progress.step();
  const std::optional<Divergence> found = divergence_.look(step, double(result.loss), double(result.grad_norm));
  if (!found) return;
  const std::optional<std::int64_t> change = change_to_undo(bench_.plan, bench_.progress.undone_changes(), step);
  bench_.observer.diverged(bench_.rank.id, {found->step, found->what, found->value, found->mean, change.value_or(-1)});
  Op op = bench_.op(OpKind::vote, Phase::commit, "divergence", SEEKSIM_SITE);
  op.epoch = world_.epoch();
  throw SeamError(ErrorKind::diverged, op, text(*found, plan));
}

}  // namespace seeksim::runtime
