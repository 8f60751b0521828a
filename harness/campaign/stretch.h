// Steps that nothing disturbs. They are not simulated one by one: each takes as long as the last, and after some of
// them training waits for a checkpoint, so that the moment of each commit is known in closed form.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/seams/time.h"

namespace seeksim::harness::campaign {

using runtime::TimeNs;

class Stretch {
 public:
  struct Stop {
    std::int64_t every = 0;  // after each step whose number this divides
    TimeNs blocks_ns = 0;
  };
  // begin: of its first step. first: steps that were done before it.
  Stretch(TimeNs begin, std::int64_t first, TimeNs step_ns, std::vector<Stop> stops);

  std::int64_t first() const { return first_; }
  TimeNs begin() const { return begin_; }
  TimeNs step_ns() const { return step_ns_; }
  // Of its j-th step, j from 1; 0: its begin.
  TimeNs commit(std::int64_t j) const;
  // How many of its steps are committed at `at`.
  std::int64_t committed(TimeNs at) const;
  // How long training waits for checkpoints after its first j steps.
  TimeNs stops(std::int64_t j) const;
  // The end of the first step, and of its checkpoints, that is not before `at`.
  TimeNs in_order(TimeNs at) const;
  // When the checkpoint of stop `which` begins, after a step of this stretch, its j-th.
  TimeNs checkpoint_begins(std::size_t which, std::int64_t j) const;

 private:
  TimeNs stops_after(std::int64_t j) const;  // after the j-th step alone

  TimeNs begin_;
  std::int64_t first_;
  TimeNs step_ns_;
  std::vector<Stop> stops_;
};

}  // namespace seeksim::harness::campaign
