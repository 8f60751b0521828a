#include "harness/loading/recovery.h"

#include <fmt/format.h>

#include <algorithm>

#include "harness/loading/rules.h"
#include "harness/oracles/numbers.h"
#include "runtime/decide/membership.h"

namespace seeksim::harness {
namespace {

using namespace shapes;
using runtime::CheckpointPlan;
using runtime::DivergencePlan;
using runtime::RecoveryPlan;
using runtime::RecoveryPolicy;
using runtime::RollbackPlan;
using runtime::StragglerPlan;

bool finds_stragglers(const RecoveryPlan& plan) { return plan.straggler.on; }
bool finds_divergence(const RecoveryPlan& plan) { return plan.divergence.on; }
bool rolls_back(const RecoveryPlan& plan) { return plan.rollback.on; }

bool is_object(const Json* value) { return value != nullptr && value->is_object(); }

const Keys<StragglerPlan>& straggler_keys() {
  static const Keys<StragglerPlan> keys = {
      {"score_below", at(&StragglerPlan::score_below), number().above(0).below(1), kNoBit,
       "Below it a rank is too slow."},
      {"steps", at(&StragglerPlan::steps), integer(1), kNoBit, "Number of steps in a row."},
      {"evict", at(&StragglerPlan::evict), flag(), kNoBit, "The rank leaves, and the others continue."},
  };
  return keys;
}

const Keys<RollbackPlan>& rollback_keys() {
  static const Keys<RollbackPlan> keys = {
      {"steps", at(&RollbackPlan::steps), integer(1), kNoBit,
       "So many steps after a change of the configuration, a divergence undoes it."},
  };
  return keys;
}

const Keys<DivergencePlan>& divergence_keys() {
  static const Keys<DivergencePlan> keys = {
      {"factor", at(&DivergencePlan::factor), number().above(1), kNoBit, "How many times the mean is too much."},
      {"window_steps", at(&DivergencePlan::window_steps), integer(1), kNoBit,
       "Steps in the mean. Nothing is judged before that many steps."},
      {"rollback_steps", at(&DivergencePlan::rollback_steps), integer(0), kNoBit,
       "Go back to a checkpoint that is at least this many steps old; 0: stop."},
      {"drop_batches", at(&DivergencePlan::drop_batches), integer(0), kNoBit,
       "After going back: this many global batches, from the first undone one on, are never used again."},
  };
  return keys;
}

}  // namespace

const Keys<RecoveryPlan>& recovery_keys() {
  static const Keys<RecoveryPlan> keys = {
      {"policy", policy_word(), text(), kNoBit,
       "stop; retry_step, with the same ranks; rebuild_and_redo, with the survivors; restart_from_checkpoint, the "
       "newest valid one; or a policy that a program of one's own has added."},
      {"watchdog_s", in_seconds(&RecoveryPlan::watchdog_ns), number().above(0), kNoBit,
       "How long any operation may take, in virtual seconds."},
      {"agree_s", in_seconds(&RecoveryPlan::agree_ns), number().above(0), kNoBit,
       "A rank that has not answered the agreement by then is dead."},
      {"attempts", at(&RecoveryPlan::attempts_max), integer(1), kNoBit,
       "Recoveries without a committed step in between, then stop."},
      {"stop_after_skips", at(&RecoveryPlan::skip, &runtime::SkipPlan::stop_after), integer(0), kNoBit,
       "Stop after this many skipped steps in a row; 0: skip for ever."},
      {"rerun_and_compare", at(&RecoveryPlan::rerun_and_compare), flag(), kNoBit,
       "Run each micro-batch twice and compare the bits before the vote: other bits are a hardware fault, whose rank "
       "is named, and the step is redone; a rank that errs again in the same step is evicted. About twice the "
       "compute."},
      {"memory_ladder", at(&RecoveryPlan::memory_ladder), flag(), kNoBit,
       "When a rank is out of memory, all take the next layout that needs less, and redo the step with the same bits: "
       "the same once more with nothing cached; half the micro-batch; activations checkpointed at every layer; before "
       "the first commit also ZeRO stages 1, 2, 3, then optimizer and parameters on CPU. At the end of the ladder the "
       "run stops."},
      {"peer_copies", at(&RecoveryPlan::peer_copies), integer(0), kNoBit,
       "With rebuild_and_redo at ZeRO 1 to 3: how many copies of each shard's state other ranks keep, on other nodes "
       "where there are some. 0: none."},
      {"spares", at(&RecoveryPlan::spares), integer(0), kNoBit,
       "The last ranks of the world wait until a member is lost, and take its place."},
      {"grow", at(&RecoveryPlan::grow), flag(), kNoBit,
       "A rank that comes back is taken in after the next committed step."},
      {"ranks_min", at(&RecoveryPlan::ranks_min), integer(1), kNoBit, "With fewer members the run stops."},
      {"save_on_notice", at(&RecoveryPlan::save_on_notice), flag(), kNoBit,
       "When a rank gets notice to leave, all save a checkpoint first (where checkpoints are on); false: only "
       "what it holds moves to the others."},
      {"restarts", at(&RecoveryPlan::restarts_max), integer(0), kNoBit,
       "How often the job is started again when it ended before its time, from the newest valid checkpoint."},
      {"restart_s", in_seconds(&RecoveryPlan::restart_ns), number().least(0), kNoBit,
       "Virtual seconds until the processes of the next job run."},
      {"heartbeat_s", in_seconds(&RecoveryPlan::heartbeat_ns), number().least(0), kNoBit,
       "Interval of heartbeats to the control plane; 0: none."},
      {"heartbeat_timeout_s", in_seconds(&RecoveryPlan::heartbeat_timeout_ns), number().above(0), kNoBit,
       "A rank that is silent for this long is declared dead."},
      {"storage_attempts", at(&RecoveryPlan::storage_attempts_max), integer(1), kNoBit,
       "Of one read or write of a file; then it has failed."},
      {"storage_backoff_s", in_seconds(&RecoveryPlan::storage_backoff_ns), number().least(0), kNoBit,
       "Before the second attempt; doubled before each further one."},
      {"straggler", inside(straggler_keys(), &RecoveryPlan::straggler).when(finds_stragglers), straggler_keys().shape(),
       kNoBit, "Ranks that compute slower than the others, by score = the fastest rank's busy time / own."},
      {"divergence", inside(divergence_keys(), &RecoveryPlan::divergence).when(finds_divergence),
       divergence_keys().shape(), kNoBit, "Loss or gradient norm beyond a multiple of their mean over the last steps."},
      {"rollback", inside(rollback_keys(), &RecoveryPlan::rollback).when(rolls_back), rollback_keys().shape(), kNoBit,
       "When \"divergence\" finds something soon after a change (\"changes\"), the run goes back to the checkpoint "
       "before the change, and goes on without it."},
  };
  return keys;
}

const Keys<CheckpointPlan>& checkpoint_keys() {
  static const Keys<CheckpointPlan> keys = {
      {"path", at(&CheckpointPlan::path), text().length(1).required(), kNoBit, "The folder."},
      {"every_steps", at(&CheckpointPlan::every_steps), integer(0), kNoBit,
       "Steps between checkpoints; 0: only where something asks for one."},
      {"keep", at(&CheckpointPlan::keep), integer(1), kNoBit, "Complete ones that are kept; older ones are removed."},
      {"async", at(&CheckpointPlan::async), flag(), kNoBit,
       "Training continues while a snapshot is written; false: it waits."},
      {"at_end", at(&CheckpointPlan::at_end), flag(), kNoBit, "One after the last step."},
      {"node_local", at(&CheckpointPlan::node_local), flag(), kNoBit,
       "Each node has files of its own, which are lost with it; false: all see the same."},
      {"resume", at(&CheckpointPlan::resume), flag(), kNoBit, "Begin with the newest valid one, where there is one."},
  };
  return keys;
}

void read_recovery(const Reader& recovery, Scenario& scenario) {
  RecoveryPlan& plan = scenario.train.recovery;
  recovery_keys().read(recovery, plan);
  plan.straggler.on = is_object(recovery.find("straggler"));
  plan.divergence.on = is_object(recovery.find("divergence"));
  plan.rollback.on = is_object(recovery.find("rollback"));
  if (plan.memory_ladder && plan.policy == RecoveryPolicy::stop) {
    recovery.problem("memory_ladder", "the policy is to stop, so there is nothing to try",
                     "Use the policy rebuild_and_redo or retry_step, or leave it out.");
  }
}

void read_checkpoint(const Reader& checkpoint, Scenario& scenario) {
  checkpoint_keys().read(checkpoint, scenario.train.checkpoint);
  refuse_to_leave(checkpoint, "path");
}

namespace {
void check_rollback(const Reader& recovery, const Scenario& scenario) {
  const RecoveryPlan& plan = scenario.train.recovery;
  if (!plan.rollback.on) return;
  if (!plan.divergence.on) {
    recovery.problem("rollback", "nothing says which numbers are out of range",
                     "Add \"divergence\": { \"factor\": 5, \"window_steps\": 20 } to \"recovery\".");
  }
  if (!scenario.train.checkpoint.on()) {
    recovery.problem("rollback", "it needs checkpoints to go back to",
                     "Add \"checkpoint\": { \"path\": \"checkpoints\" }: one is written where a change begins.");
  }
  if (scenario.train.definition.changes.empty()) {
    recovery.problem("rollback", "the scenario has no \"changes\" that could be undone",
                     "Add \"changes\": [ { \"step\": 100, \"lr_scale\": 2 } ], or remove it.");
  }
}
}  // namespace

void check_recovery(const Reader& top, const Scenario& scenario) {
  const RecoveryPlan& plan = scenario.train.recovery;
  const Reader recovery = top.child("recovery");
  const bool files = scenario.train.checkpoint.on();
  if (plan.policy == RecoveryPolicy::restart_from_checkpoint && !files) {
    recovery.problem("policy", "restart_from_checkpoint needs checkpoints, and there is no \"checkpoint\" with a path",
                     "Add \"checkpoint\": { \"path\": \"checkpoints\", \"every_steps\": 10 }.");
  }
  if (plan.restarts_max > 0 && !files) {
    recovery.problem("restarts", "a job that is started again needs checkpoints to begin from",
                     "Add \"checkpoint\": { \"path\": \"checkpoints\", \"every_steps\": 10 }.");
  }
  if (plan.divergence.on && plan.divergence.rollback_steps > 0 && !files) {
    recovery.problem("divergence", "rollback_steps needs checkpoints to go back to",
                     "Add \"checkpoint\", or set rollback_steps to 0: then the run stops.");
  }
  check_rollback(recovery, scenario);
  const int ranks = scenario.world.ranks(), members = ranks - plan.spares;
  if (plan.spares > 0 && members < 1) {
    recovery.problem("spares", fmt::format("{} of {} ranks leave no rank to train", plan.spares, ranks),
                     "Use fewer spares, or more ranks in \"world\".");
  }
  if (plan.ranks_min > std::max(members, 1)) {
    recovery.problem("ranks_min", fmt::format("the run begins with {} members", members),
                     "Use fewer, or more ranks in \"world\".");
  }
  // Layouts that the ladder has changed are not handed over.
  if (plan.memory_ladder && takes_in(plan)) {
    recovery.problem("memory_ladder", "a joining rank would not know the layout that the others have chosen",
                     "Use neither grow nor spares with it.");
  }
}

}  // namespace seeksim::harness
