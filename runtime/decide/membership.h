// Members of the next world, and their seats (layout/seats.h). Every decision is a pure function of what all members
// agreed on, so that all of them, and ranks that join, decide alike.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <vector>

#include "runtime/decide/run_state.h"
#include "runtime/detect/divergence.h"
#include "runtime/layout/seats.h"
#include "runtime/plan/plan.h"

namespace seeksim::runtime {

// A roster as it comes to be.
struct NextWorld {
  Roster roster;
  std::vector<int> joiners;  // ranks that hold nothing yet, ascending
  std::vector<int> idle;     // ranks that could stay but are in no whole replica, ascending
  std::string problem;       // some part of the model has no rank
};
// Those of `stay` who make whole replicas of the model, and of those who wait as many as there is use for.
NextWorld next_world(const ParallelPlan& plan, const Seats& seats, const std::vector<int>& stay,
                     const std::vector<int>& waiting);

// Whether this plan takes in who waits.
inline bool takes_in(const RecoveryPlan& plan) { return plan.grow || plan.spares > 0; }

// What who joins has to know before it can do anything; the first of those who know it puts it on the table of a vote.
struct HandOver {
  RunState run;
  Roster world;                 // that begins now
  std::vector<int> joiners;     // in it
  std::int64_t load_most = -1;  // all begin with a checkpoint of so many steps at most; -1: they do not
  Roster shards;                // the world in which shards were cut, and are held; empty before the first commit
  // The divergence monitor's earlier steps, and batches to leave out that the checkpoint does not know of.
  std::deque<DivergenceMonitor::Step> window;
  std::vector<std::int64_t> left_out;
  std::int64_t leaves_out_more = 0;
  friend bool operator==(const HandOver&, const HandOver&) = default;
};
std::vector<std::int64_t> to_words(const HandOver& all);
HandOver hand_over_from(std::span<const std::int64_t> words);

}  // namespace seeksim::runtime
