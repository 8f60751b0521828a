// What follows from a scenario: what kind of run it is, how many ranks share its batch, and the scenarios beside it.
#pragma once

#include "harness/scenario/scenario.h"
#include "kernels/fast.h"
#include "runtime/layout/shard_groups.h"

namespace seeksim::harness {

// "numerics": "fast", a run with vendors' products and sums.
bool is_fast(const Scenario& scenario);
// "numerics": "shapes", a run without values, in which only sizes, order and time exist.
bool is_of_shapes(const Scenario& scenario);
// The vendors' way that a run of fast arithmetic takes, with what a planted bug makes of it.
kernels::FastWay fast_way(const runtime::TrainPlan& plan);

// How many ranks share the batch: the length of the data axis.
int data_size(const Scenario& scenario);
// How ZeRO's shards lie among them; spares hold none.
runtime::ShardGroups shard_groups_of(const Scenario& scenario);
// Copies of others' shards that a rank keeps at most, for recoveries; 0 where none are kept.
int peer_copies_at_most(const Scenario& scenario);
// Micro-batches of the replica that has most; 0 where the batch is not known yet.
int micro_batches_of_replica(const Scenario& scenario);

// The same training on one rank, undisturbed, without the steps that the golden leaves out.
Scenario one_rank(const Scenario& scenario);
// The same world without its faults.
Scenario undisturbed(const Scenario& scenario);
// The run beside one of fast arithmetic: the same world, undisturbed, by the contract.
Scenario teacher(const Scenario& scenario);
// The same run as seeksim would do it.
Scenario without_quirks(const Scenario& scenario);

}  // namespace seeksim::harness
