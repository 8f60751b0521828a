// When what fails: the failures of a campaign in the order of time, drawn for each unit or taken from a log. What they
// do to a job is not known here, so that they are the same whatever is done about them: two policies with one seed meet
// the same failures, and taking one cause away moves no other.
#pragma once

#include <cstdint>
#include <optional>
#include <queue>
#include <vector>

#include "harness/campaign/plan.h"

namespace seeksim::harness::campaign {

struct Failure {
  TimeNs at_ns = 0;
  int cause = -1;                    // of the study; -1: of the log
  std::int64_t incident = -1;        // of the log
  std::int64_t node = 0, nodes = 1;  // that fail, in a row
  bool of_the_job = false;           // the node is the one of the job that `pick` says
  double pick = 0;                   // [0, 1)
  TimeNs repair_ns = 0;              // 0: the nodes are fine
  TimeNs slow_ns = 0;                // how long the job is slow; 0: it stops
  // For durations that depend on what is done about it, each in [0, 1).
  double u_detect = 0, u_agree = 0, u_rebuild = 0, u_restart = 0;
};

class FailureStream {
 public:
  // The study outlives it.
  FailureStream(const Study& study, std::uint64_t seed);
  // The next failure, before horizon_ns; none: there are no more.
  std::optional<Failure> next(TimeNs horizon_ns);

 private:
  struct Due {
    TimeNs at_ns;
    int cause;
    std::int64_t unit;
    std::int64_t number;  // of the unit's failures of this cause
    bool operator>(const Due& other) const {
      if (at_ns != other.at_ns) return at_ns > other.at_ns;
      return cause != other.cause ? cause > other.cause : unit > other.unit;
    }
  };
  void begin(int cause);
  Failure drawn(const Due& due) const;
  Failure of_the_log();

  const Study& study_;
  std::uint64_t seed_;
  std::priority_queue<Due, std::vector<Due>, std::greater<>> due_;
  std::size_t log_at_ = 0;
};

// How many units of a kind a cluster has; 0: it has none of them. Spares count.
std::int64_t units_of(const Study& study, Unit unit);
// Nodes of one unit.
std::int64_t nodes_of(const Cluster& cluster, Unit unit);
// Hours between two failures of one unit.
double mtbf_hours_of(const Study& study, const Cause& cause);
// The mean number of failures of all causes in an hour, of the nodes of the job and without the log.
double failures_per_hour(const Study& study);

}  // namespace seeksim::harness::campaign
