// World: the members of an epoch, this rank's place among them, how a step is cut, and the communicators that join the
// rank with the others: along the data axis, within its shard group and across them, within its replica of the model,
// among its tensor ways, within its expert group or its context group, between stages.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "runtime/comm/communicator.h"
#include "runtime/comm/context_group.h"
#include "runtime/comm/expert_group.h"
#include "runtime/comm/tensor_parallel.h"
#include "runtime/decide/membership.h"
#include "runtime/layout/grid.h"
#include "runtime/layout/parameters.h"
#include "runtime/layout/shard.h"
#include "runtime/layout/shard_groups.h"
#include "runtime/trainer/pipeline_links.h"
#include "runtime/trainer/workbench.h"
#include "runtime/zero/replica.h"

namespace seeksim::runtime {

class World {
 public:
  World(Workbench& bench, const Seats& seats) : bench_(bench), seats_(seats) {}

  // Memory for what ranks of one replica exchange, where a model is on several ranks. parameters: of this rank.
  void allocate(const Parameters& parameters);
  // Everything that follows from the roster alone: places in the grid and the cut of a step.
  void seat(const Roster& roster);
  // Communicators of `epoch` for the roster that was seated. Collective; blocks.
  void connect(std::uint32_t epoch);
  // That of the whole data axis alone, among `axis`.
  void connect_data_axis(std::uint32_t epoch, std::vector<int> axis);
  void disconnect();

  const Seats& seats() const { return seats_; }
  const Grid& grid() const { return *grid_; }
  const GridPlace& place() const { return place_; }
  // The part of the model that is here, counted over stages and ways.
  int part() const { return part_of(place_); }
  int part_of(const GridPlace& place) const { return place.stage * parallel().ways() + place.way; }
  // Which of those who share the step's samples this is: ranks of the data axis, or of all expert groups.
  int share() const { return share_of(place_); }
  int share_of(const GridPlace& place) const {
    return parallel().expert > 1 ? place.data * parallel().expert + place.way / parallel().tensor : place.data;
  }
  int shares() const { return grid_->replicas() * parallel().expert; }
  const TreeOwnership& ownership() const { return ownership_; }
  const StepCut& cut() const { return cut_; }  // of this rank's shard group
  const ShardGroups& groups() const { return groups_; }
  // The micro-batches of one of those who share the samples: in samples of the step. The ranks of an expert group go
  // through as many, empty ones at the end.
  std::vector<SampleRange> micro_batches_of(int share) const;
  Index samples_of(int share) const;
  // Where workers train apart: those that are here; else one, whose samples are all ranks'.
  SampleRange workers() const;
  // Which of those that are here has these samples of the step.
  Index worker_of(const SampleRange& samples) const;

  bool connected() const { return comm_.has_value(); }
  bool is_lowest_rank() const { return comm_ && lowest_ == bench_.rank.id; }
  std::uint32_t epoch() const { return comm_ ? comm_->epoch() : bench_.rank.control.epoch(); }
  Communicator& comm() { return *comm_; }  // of the data axis
  const Communicator& comm() const { return *comm_; }
  // Of the ranks among whom ZeRO cuts: the shard group, or the data axis where that is one group.
  Communicator& shards() { return shards_ ? *shards_ : *comm_; }
  const Communicator& shards() const { return shards_ ? *shards_ : *comm_; }
  // Of the ranks that keep all parameters once more for backward; null: there are none.
  Communicator* secondary() { return secondary_ ? &*secondary_ : nullptr; }
  Communicator* replicas() { return replicas_ ? &*replicas_ : nullptr; }  // of those with the same shard, if any
  Replica* replica() { return replica_ ? &*replica_ : nullptr; }          // where a model is on several ranks
  TensorAxis* tensor() { return tensor_ ? &*tensor_ : nullptr; }          // where its products are split
  ExpertGroup* experts() { return experts_ ? &*experts_ : nullptr; }      // where experts are divided among ranks
  const ExpertGroup* experts() const { return experts_ ? &*experts_ : nullptr; }
  ContextGroup* context() { return context_ ? &*context_ : nullptr; }  // where a sample's tokens are
  PipelineLinks* links() { return links_ ? &*links_ : nullptr; }       // where it has stages
  std::vector<Communicator*> communicators();                          // that are there: of the data axis first

 private:
  std::vector<SampleRange> own_micro_batches_of(int share) const;
  std::vector<int> ways_with(const std::function<bool(int)>& has) const;
  const ParallelPlan& parallel() const { return bench_.plan.layout.parallel; }

  Workbench& bench_;
  Seats seats_;
  std::optional<Grid> grid_;
  GridPlace place_;
  int lowest_ = 0;  // launch rank
  TreeOwnership ownership_;
  StepCut cut_;
  ShardGroups groups_;
  // Made once; what they hold of an epoch is made by connect().
  std::optional<Replica> replica_;
  std::optional<TensorAxis> tensor_;
  std::optional<ExpertGroup> experts_;
  std::optional<ContextGroup> context_;
  // Made by connect().
  std::optional<Communicator> comm_, shards_, replicas_, secondary_;
  std::optional<PipelineLinks> links_;
};

}  // namespace seeksim::runtime
