// Links: how long bytes take from one rank to another, and when ranks learn of a failure. Two kinds a world: inside a
// node and between nodes. A rank sends its pieces over one adapter of each kind, so they queue behind each other there.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "runtime/seams/seams.h"
#include "sim/random.h"
#include "sim/world.h"

namespace seeksim::sim {

// For how long the pieces of one collective keep a rank's adapters busy; or, of several ranks, the busiest of each.
struct CollectiveLoad {
  struct Adapter {
    TimeNs busy = 0;    // sending or receiving, whichever takes longer
    bool used = false;  // by a piece, however small
  };
  Adapter inside, between;
  void at_least(const CollectiveLoad& other);
};

// How long whole collectives take on a machine that somebody measured, in place of what the links say. Implemented
// above the simulator; docs/calibration.md says what a scenario gives.
class CollectiveTimes {
 public:
  enum class What : std::uint8_t { all_reduce, all_gather, reduce_scatter };
  CollectiveTimes() = default;
  CollectiveTimes(const CollectiveTimes&) = delete;
  CollectiveTimes& operator=(const CollectiveTimes&) = delete;
  virtual ~CollectiveTimes() = default;

  // bytes: the whole vector, of all ranks together for a gather and a scatter. nodes, per_node: on which the group's
  // ranks lie, and how many of them on one at most.
  virtual runtime::TimeNs time(What what, std::size_t bytes, int ranks, int nodes, int per_node) const = 0;
};

class Network {
 public:
  explicit Network(const WorldPlan& plan);

  int node_of(int rank) const { return rank / ranks_per_node_; }
  const LinkModel& link(int from, int to) const { return node_of(from) == node_of(to) ? inside_ : between_; }
  const LinkModel& inside() const { return inside_; }
  const LinkModel& between() const { return between_; }

  // When `bytes` that start now arrive. slow: multiplies the transfer, delay: added to it.
  TimeNs arrival(TimeNs now, int from, int to, std::size_t bytes, double slow = 1.0, TimeNs delay = 0);
  // For a steady world, where nothing is drawn: the load that a rank's pieces are to its adapters, and how long a
  // collective takes whose busiest adapters have this load.
  CollectiveLoad load(int rank, std::span<const runtime::Piece> pieces) const;
  TimeNs time_of(const CollectiveLoad& busiest) const;
  // What an all-reduce over `nodes` nodes with at most `per_node` members each takes: the faster of ring and tree
  // inside the nodes, then between them.
  TimeNs all_reduce(int nodes, int per_node, std::size_t bytes) const;
  // What whole collectives take instead, where somebody measured it; null: links say what they take.
  const CollectiveTimes* times() const { return times_.get(); }
  // How many times as long what this queue of a rank does takes by the schedule.
  double slowness(int rank, SlowQueue::Which queue) const {
    return slow_.empty() ? 1.0 : slow_[std::size_t(rank)][std::size_t(queue)];
  }
  bool any_slow() const { return !slow_.empty(); }
  bool steady() const { return steady_; }
  // 1 +- noise, drawn.
  double jitter() { return noise_ == 0 ? 1.0 : 1.0 + noise_ * (2.0 * random_.unit() - 1.0); }

 private:
  struct Adapter {  // when it will have sent, or received, all that it has been given
    TimeNs sent = 0;
    TimeNs received = 0;
  };
  struct Adapters {
    Adapter inside, between;
  };

  using SlowQueues = std::array<double, std::size_t(SlowQueue::Which::count_)>;

  int ranks_per_node_;
  LinkModel inside_;
  LinkModel between_;
  double noise_;
  bool steady_;
  std::shared_ptr<const CollectiveTimes> times_;
  Random random_;
  std::vector<Adapters> adapters_;  // by rank
  std::vector<SlowQueues> slow_;    // by rank; empty: none is
};

}  // namespace seeksim::sim
