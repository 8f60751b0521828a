#include "harness/loading/recovery.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "harness/input/seconds.h"
#include "harness/loading/faults.h"
#include "harness/oracles/numbers.h"
#include "runtime/decide/membership.h"

namespace seeksim::harness {
namespace {

using runtime::CheckpointPlan;
using runtime::RecoveryPlan;
using runtime::RecoveryPolicy;
using runtime::seconds;

constexpr std::array<std::pair<RecoveryPolicy, const char*>, 4> kPolicies = {
    {{RecoveryPolicy::stop, "stop"},
     {RecoveryPolicy::retry_step, "retry_step"},
     {RecoveryPolicy::rebuild_and_redo, "rebuild_and_redo"},
     {RecoveryPolicy::restart_from_checkpoint, "restart_from_checkpoint"}}};

int small(const Reader& reader, const char* key, int otherwise) {
  return int(std::min<std::int64_t>(reader.integer(key, otherwise), 1 << 30));
}

void read_straggler(const Reader& section, runtime::StragglerPlan& plan) {
  plan.on = section.value() != nullptr && section.value()->is_object();
  plan.score_below = section.number("score_below", plan.score_below);
  plan.steps = small(section, "steps", plan.steps);
  plan.evict = section.flag("evict", plan.evict);
}

void read_divergence(const Reader& section, runtime::DivergencePlan& plan) {
  plan.on = section.value() != nullptr && section.value()->is_object();
  plan.factor = section.number("factor", plan.factor);
  plan.window_steps = section.integer("window_steps", plan.window_steps);
  plan.rollback_steps = section.integer("rollback_steps", plan.rollback_steps);
  plan.drop_batches = section.integer("drop_batches", plan.drop_batches);
}

Json straggler_json(const runtime::StragglerPlan& plan) {
  return {{"score_below", plan.score_below}, {"steps", plan.steps}, {"evict", plan.evict}};
}

Json divergence_json(const runtime::DivergencePlan& plan) {
  return {{"factor", plan.factor},
          {"window_steps", plan.window_steps},
          {"rollback_steps", plan.rollback_steps},
          {"drop_batches", plan.drop_batches}};
}

}  // namespace

void read_recovery(const Reader& recovery, Scenario& scenario) {
  RecoveryPlan& plan = scenario.train.recovery;
  const std::string policy = recovery.text("policy", "rebuild_and_redo");
  for (const auto& [value, name] : kPolicies) {
    if (policy == name) plan.policy = value;
  }
  plan.watchdog_ns = read_seconds(recovery, "watchdog_s", plan.watchdog_ns);
  plan.agree_ns = read_seconds(recovery, "agree_s", plan.agree_ns);
  plan.skip.stop_after = recovery.integer("stop_after_skips", 0);
  plan.rerun_and_compare = recovery.flag("rerun_and_compare", false);
  plan.memory_ladder = recovery.flag("memory_ladder", false);
  if (plan.memory_ladder && plan.policy == RecoveryPolicy::stop) {
    recovery.problem("memory_ladder", "the policy is to stop, so there is nothing to try",
                     "Use the policy rebuild_and_redo or retry_step, or leave it out.");
  }
  plan.attempts_max = small(recovery, "attempts", plan.attempts_max);
  plan.peer_copies = small(recovery, "peer_copies", plan.peer_copies);
  plan.spares = small(recovery, "spares", plan.spares);
  plan.grow = recovery.flag("grow", plan.grow);
  plan.ranks_min = small(recovery, "ranks_min", plan.ranks_min);
  read_straggler(recovery.child("straggler"), plan.straggler);
  read_divergence(recovery.child("divergence"), plan.divergence);
  plan.save_on_notice = recovery.flag("save_on_notice", plan.save_on_notice);
  plan.restarts_max = small(recovery, "restarts", plan.restarts_max);
  plan.restart_ns = read_seconds(recovery, "restart_s", plan.restart_ns);
  plan.heartbeat_ns = read_seconds(recovery, "heartbeat_s", plan.heartbeat_ns);
  plan.heartbeat_timeout_ns = read_seconds(recovery, "heartbeat_timeout_s", plan.heartbeat_timeout_ns);
  plan.storage_attempts_max = small(recovery, "storage_attempts", plan.storage_attempts_max);
  plan.storage_backoff_ns = read_seconds(recovery, "storage_backoff_s", plan.storage_backoff_ns);
}

void read_checkpoint(const Reader& checkpoint, Scenario& scenario) {
  CheckpointPlan& plan = scenario.train.checkpoint;
  plan.path = checkpoint.text("path");
  plan.every_steps = checkpoint.integer("every_steps", plan.every_steps);
  plan.keep = small(checkpoint, "keep", plan.keep);
  plan.async = checkpoint.flag("async", plan.async);
  plan.at_end = checkpoint.flag("at_end", plan.at_end);
  plan.node_local = checkpoint.flag("node_local", plan.node_local);
  plan.resume = checkpoint.flag("resume", plan.resume);
}

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
  const int ranks = scenario.world.ranks(), members = ranks - plan.spares;
  if (plan.spares > 0 && members < 1) {
    recovery.problem("spares", fmt::format("{} of {} ranks leave nobody to train", plan.spares, ranks),
                     "Use fewer spares, or more ranks in \"world\".");
  }
  if (plan.ranks_min > std::max(members, 1)) {
    recovery.problem("ranks_min", fmt::format("the run begins with {} members", members),
                     "Use fewer, or more ranks in \"world\".");
  }
  // Layouts that the ladder has changed are not handed over.
  if (plan.memory_ladder && takes_in(plan)) {
    recovery.problem("memory_ladder", "who joins would not know the layout that the others have taken",
                     "Use neither grow nor spares with it.");
  }
}

Json recovery_json(const RecoveryPlan& plan) {
  Json json;
  for (const auto& [value, name] : kPolicies) {
    if (plan.policy == value) json["policy"] = name;
  }
  json.update({{"watchdog_s", seconds(plan.watchdog_ns)},
               {"agree_s", seconds(plan.agree_ns)},
               {"attempts", plan.attempts_max},
               {"stop_after_skips", plan.skip.stop_after},
               {"rerun_and_compare", plan.rerun_and_compare},
               {"memory_ladder", plan.memory_ladder},
               {"peer_copies", plan.peer_copies},
               {"spares", plan.spares},
               {"grow", plan.grow},
               {"ranks_min", plan.ranks_min},
               {"save_on_notice", plan.save_on_notice},
               {"restarts", plan.restarts_max},
               {"restart_s", seconds(plan.restart_ns)},
               {"heartbeat_s", seconds(plan.heartbeat_ns)},
               {"heartbeat_timeout_s", seconds(plan.heartbeat_timeout_ns)},
               {"storage_attempts", plan.storage_attempts_max},
               {"storage_backoff_s", seconds(plan.storage_backoff_ns)}});
  if (plan.straggler.on) json["straggler"] = straggler_json(plan.straggler);
  if (plan.divergence.on) json["divergence"] = divergence_json(plan.divergence);
  return json;
}

Json checkpoint_json(const CheckpointPlan& plan) {
  return {{"path", plan.path},     {"every_steps", plan.every_steps}, {"keep", plan.keep},    {"async", plan.async},
          {"at_end", plan.at_end}, {"node_local", plan.node_local},   {"resume", plan.resume}};
}

}  // namespace seeksim::harness
