// Rules of a run: pipeline schedules, a placement, collectives and recovery policies of this project's own.
#pragma once

#include <memory>

#include <seeksim/seeksim.h>

// 1F1B with more forwards before the first backward: on a slow network gradients are back in time. extra: how many.
std::shared_ptr<const seeksim::runtime::ScheduleRule> eager_1f1b(int extra);
// Each stage takes all micro-batches backwards in reverse: the one that went forward last has its activations at hand.
std::shared_ptr<const seeksim::runtime::ScheduleRule> last_first();
// A mistake: the last stage waits for all forwards, and the others for each backward in turn.
std::shared_ptr<const seeksim::runtime::ScheduleRule> stuck();

// The first shard is so many times as large as each other one: its rank has more memory.
std::shared_ptr<const seeksim::runtime::PlacementRule> first_is_larger(double times);

// A ring in both directions at once, in half as many rounds: links carry both ways.
std::shared_ptr<const seeksim::runtime::GatherRule> both_ways();
// A mistake: the ring ends one round early.
std::shared_ptr<const seeksim::runtime::GatherRule> one_round_short();

// Ranks leave by machines, as they are rented: who dies takes the others of its machine along.
std::shared_ptr<const seeksim::runtime::RecoveryRule> whole_machines(int ranks_per_machine);
// A mistake: it goes on with the dead.
std::shared_ptr<const seeksim::runtime::RecoveryRule> with_the_dead();
