// PassMeter: when a rank's compute queue was busy with the forward and backward passes of a step, in virtual time: what
// is missing to the time from the first to the last of them, on all ranks, is a pipeline's bubble.
#pragma once

#include <algorithm>
#include <vector>

#include "runtime/seams/op.h"
#include "runtime/seams/time.h"

namespace seeksim::sim {

using runtime::TimeNs;

struct StepPasses {
  TimeNs first_ns = -1;  // of any rank; -1: there were none
  TimeNs last_ns = 0;
  TimeNs busy_ns = 0;  // of all ranks together
  int ranks = 0;
  double bubble() const {
    const double all = double(last_ns - first_ns) * ranks;
    return ranks > 0 && all > 0 ? 1 - double(busy_ns) / all : 0;
  }
  StepPasses& operator+=(const StepPasses& other) {
    if (other.ranks == 0) return *this;
    first_ns = ranks > 0 ? std::min(first_ns, other.first_ns) : other.first_ns;
    last_ns = std::max(last_ns, other.last_ns);
    busy_ns += other.busy_ns;
    ranks += other.ranks;
    return *this;
  }
};

class PassMeter {
 public:
  // Measures the first steps only, so that a long run of a large world does not fill memory.
  static constexpr std::size_t kSteps = 64;

  void runs(const runtime::Op& op, TimeNs now, TimeNs duration) {
    using runtime::Phase;
    if (op.phase != Phase::forward && op.phase != Phase::backward && op.phase != Phase::recompute) return;
    if (op.step < 0 || std::size_t(op.step) >= kSteps) return;
    if (steps_.size() <= std::size_t(op.step)) steps_.resize(std::size_t(op.step) + 1);
    StepPasses& step = steps_[std::size_t(op.step)];
    if (step.ranks == 0) step.first_ns = now;
    step.ranks = 1;
    step.last_ns = runtime::later(now, duration);
    step.busy_ns = runtime::later(step.busy_ns, duration);
  }
  const std::vector<StepPasses>& steps() const { return steps_; }

 private:
  std::vector<StepPasses> steps_;
};

}  // namespace seeksim::sim
