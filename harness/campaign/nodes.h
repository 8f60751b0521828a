// The nodes of a campaign: which sit in the job, which are spare, which are away for repair.
#pragma once

#include <cstdint>
#include <queue>
#include <vector>

#include "harness/campaign/arrivals.h"

namespace seeksim::harness::campaign {

class Nodes {
 public:
  explicit Nodes(const Study& study);

  // What a failure hits. A node that is away, or off, cannot fail.
  struct Hit {
    bool job = false;                 // a node of the job
    std::vector<std::int64_t> seats;  // of the job, that are empty now: their nodes are away
  };
  // Takes away the nodes that need a repair, until back_ns.
  Hit strike(const Failure& failure, TimeNs back_ns);
  // Repaired nodes become spares.
  void settle(TimeNs now);
  // When the next node comes back; kForever: none is away.
  TimeNs next_back() const;

  // Spares take empty seats, hot ones first. How long the slowest swap takes; 0: no seat was filled.
  TimeNs fill();
  std::int64_t spares() const { return std::int64_t(hot_.size() + cold_.size()); }
  std::int64_t filled() const { return filled_; }  // seats, so far
  std::int64_t empty_seats() const { return empty_; }
  std::int64_t taken_seats() const { return std::int64_t(node_at_.size()) - empty_; }
  // The node of a taken seat, picked by a number in [0, 1); -1: all are empty.
  std::int64_t node_of_the_job(double pick) const;
  bool in_the_job(std::int64_t node) const { return seat_of_[std::size_t(node)] >= 0; }

 private:
  enum class Is : std::uint8_t { member, hot, cold, away };
  struct Away {
    TimeNs back_ns;
    std::int64_t node;
    bool operator>(const Away& o) const { return back_ns != o.back_ns ? back_ns > o.back_ns : node > o.node; }
  };
  void hit_node(std::int64_t node, bool leaves, TimeNs back_ns, Hit& hit);

  const Study& study_;
  std::vector<Is> is_;                    // by node
  std::vector<std::int64_t> seat_of_;     // by node; -1: none
  std::vector<std::int64_t> node_at_;     // by seat; -1: empty
  std::vector<std::int64_t> hot_, cold_;  // the last one steps in next
  std::priority_queue<Away, std::vector<Away>, std::greater<>> away_;
  std::int64_t empty_ = 0, filled_ = 0;
};

// Whether each of these seats, which were lost together, has a copy on a seat that was not: copy k of seat i is on seat
// i + k * stride.
bool copies_last(const std::vector<std::int64_t>& lost, std::int64_t seats, std::int64_t copies, std::int64_t stride);
// Between copies, where nobody said: another rack, or the next node.
std::int64_t stride_of(const Cluster& cluster, std::int64_t given);

}  // namespace seeksim::harness::campaign
