// What steps, checkpoints and failures cost a job, in nanoseconds.
#pragma once

#include <functional>
#include <vector>

#include "runtime/seams/time.h"

namespace seeksim::harness::campaign {

using runtime::TimeNs;

// How a job ends after a failure.
struct Reaction {
  TimeNs noticed_ns = 0;  // from the failure until a rank notices
  TimeNs ended_ns = 0;    // from the failure until all have stopped
};

struct TierCosts {
  TimeNs blocks_ns = 0;  // training waits
  TimeNs write_ns = 0;   // from its begin until it can be used; at least blocks_ns
  TimeNs read_ns = 0;
};

struct Costs {
  TimeNs step_ns = 0;   // on all nodes
  TimeNs start_ns = 0;  // from the processes to the begin of the first step
  std::vector<TierCosts> tiers;
  // When a failure strikes: `phase_ns` after the begin of a step, of the checkpoint after it, or of the processes.
  struct Moment {
    TimeNs phase_ns = 0;
    bool in_checkpoint = false;
    bool starting = false;  // before the first step
  };
  // What follows, where the study's recovery does not say. Empty: nothing takes time.
  std::function<Reaction(const Moment& moment)> reaction;
};

}  // namespace seeksim::harness::campaign
