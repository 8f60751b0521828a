// Grid: the places of ranks. The axes of a world are pipeline (slowest), data, tensor (fastest): the order of
// Megatron-LM's default "tp-dp-pp" and of DeepSpeed's PipeModelDataParallelTopology. The ways may also be the ranks of
// an expert group, neighbours among the data-parallel ranks in both of them, with all tensor ways of each one after the
// other; or those of a context group. A member keeps its stage and its way as long as it is a member, since its
// parameters are there. Its place along the data axis is counted anew in each world.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "runtime/plan/parallel_plan.h"

namespace seeksim::runtime {

struct Seats;

struct GridPlace {
  int stage = 0;
  int data = 0;
  int way = 0;
  friend bool operator==(const GridPlace&, const GridPlace&) = default;
};

// The place of a seat (seats.h) in a world of `world_size`, which is a multiple of plan.ranks().
GridPlace launch_place(const ParallelPlan& plan, int world_size, int seat);

class Grid {
 public:
  // members: launch ranks that are alive, ascending. As many replicas of the model as the rarest (stage, way) has
  // members; ranks beyond that are idle. The ranks left of two broken replicas can make one whole replica.
  Grid(const ParallelPlan& plan, const Seats& seats, const std::vector<int>& members);
  Grid(const ParallelPlan& plan, int world_size, const std::vector<int>& members);  // each on its own seat

  int replicas() const { return replicas_; }  // 0: some (stage, way) has no rank
  std::string problem() const;                // "" or the missing places
  std::optional<GridPlace> place(int rank) const;
  int rank_at(const GridPlace& place) const;

  // Launch ranks along one axis through a place, in the order of that axis.
  std::vector<int> data_axis(int stage, int way) const;
  std::vector<int> way_axis(int stage, int data) const;
  // All ranks of one replica: by stage, then way.
  std::vector<int> replica(int data) const;
  std::vector<int> used() const;  // ascending
  std::vector<int> idle() const;  // ascending
  // All members that hold a part of the model, used and idle, ascending.
  const std::vector<int>& holders(int stage, int way) const { return holders_[std::size_t(stage * ways_ + way)]; }

 private:
  int pipeline_, ways_;
  const char* way_name_;
  int replicas_ = 0;
  std::vector<std::vector<int>> holders_;  // by (stage, way): living launch ranks, ascending
};

}  // namespace seeksim::runtime
