// Failures of a run, and when each of them was over: counted while the run goes on.
#pragma once

#include <vector>

#include "runtime/seams/time.h"

namespace seeksim::harness {

using runtime::TimeNs;

// A failure that some rank noticed, up to the next step that was committed.
struct Interruption {
  TimeNs detected_ns = -1;
  TimeNs resumed_ns = -1;  // -1: never
};

class Ledger {
 public:
  // Called for the first rank that commits a step.
  void committed(TimeNs at) {
    for (; open_ < interruptions_.size(); ++open_) interruptions_[open_].resumed_ns = at;
  }
  // Called for the first rank that agrees about a failure.
  void noticed(TimeNs at) { interruptions_.push_back({at, -1}); }
  const std::vector<Interruption>& interruptions() const { return interruptions_; }

 private:
  std::size_t open_ = 0;  // interruptions before this one are over
  std::vector<Interruption> interruptions_;
};

}  // namespace seeksim::harness
