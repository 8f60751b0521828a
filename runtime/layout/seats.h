// Seats of members. A seat is a launch rank's place in the grid. A rank that joins takes a free seat, its own if that
// one serves. There are never more members than seats, and spares have none at first.
#pragma once

#include <map>
#include <vector>

#include "runtime/plan/plan.h"

namespace seeksim::runtime {

struct Seats {
  int count = 1;                 // ranks of the launch without spares
  std::map<int, int> elsewhere;  // by launch rank: those who do not sit on their own seat
  int of(int rank) const {       // -1: has none
    if (const auto it = elsewhere.find(rank); it != elsewhere.end()) return it->second;
    return rank < count ? rank : -1;
  }
  friend bool operator==(const Seats&, const Seats&) = default;
};
inline Seats launch_seats(const TrainPlan& plan, int world_size) { return {world_size - plan.recovery.spares, {}}; }

// Members and their seats: what shards are cut for.
struct Roster {
  std::vector<int> members;  // launch ranks, ascending
  Seats seats;
  friend bool operator==(const Roster&, const Roster&) = default;
};

}  // namespace seeksim::runtime
