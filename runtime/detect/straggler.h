// Which ranks are too slow. A score compares the time that a rank's device computed in a step with the fastest
// comparable time (after NVRx): 1 is the best, 0.5 takes twice as long. Pure functions of what the votes carry, so that
// all members come to the same finding without further messages.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "runtime/plan/plan.h"
#include "runtime/seams/time.h"

namespace seeksim::runtime {

// What a rank has to do in a step.
struct StepWork {
  std::int64_t samples = 0;
  std::int64_t micro_batches = 0;
};

// One rank's step. part: of the model; only ranks that compute the same part can be compared.
struct BusyStep {
  int rank = -1;
  int part = 0;
  StepWork work;
  TimeNs busy_ns = 0;
};

// By position in `steps`: the least time in which any rank of the same part would have done this rank's work, over its
// own time. The time of a rank with as much work or more counts as it is. The time of a rank with less is scaled up,
// which is kind to the slow rank: launches have a cost of their own. A rank without comparison scores 1.
std::vector<double> straggler_scores(std::span<const BusyStep> steps);

struct Straggler {
  int rank = -1;
  double score = 1;
  int steps = 0;  // below the limit, in a row
};

class StragglerMonitor {
 public:
  explicit StragglerMonitor(const StragglerPlan& plan) : plan_(plan) {}
  // Other members, another cut: what was seen before is no measure.
  void begin_world();
  // Takes the steps of all members, in one order. Each is also compared with the rank's own best in this world, so that
  // a rank without a peer is judged too. Returns ranks that reached plan.steps slow steps in a row; the slowest first.
  std::vector<Straggler> look(std::span<const BusyStep> steps);
  const std::vector<double>& scores() const { return scores_; }  // of the last look

 private:
  struct Seen {
    TimeNs best_ns = 0;  // 0: none yet
    int below = 0;       // steps in a row
  };
  StragglerPlan plan_;
  std::vector<Seen> seen_;  // by position
  std::vector<double> scores_;
};

}  // namespace seeksim::runtime
