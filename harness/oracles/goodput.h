// What a long run was worth: the share of its virtual time that went into steps which lasted (ETTR: steps x step time /
// wall time), where the rest went, how long faults took to be noticed and to be over, and what Young's and Daly's
// formula says of the same checkpoints. Counted while the run goes on; only interruptions are kept one by one.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "harness/input/json.h"
#include "runtime/detect/observer.h"

namespace seeksim::harness {

using runtime::TimeNs;
struct RunRecord;

struct Spread {
  std::size_t n = 0;
  double mean = 0, p50 = 0, max = 0;
};
Spread spread(std::vector<double> values);

// ---- Young's and Daly's formula ------------------------------------------------------------------------------------

// The best amount of work between two checkpoints that each take `cost`, with failures every `mtbf` in the mean.
double best_interval(double cost, double mtbf);
// The share of time that is lost: checkpoints, work since the last one, restarts. To first order; holds where
// cost and interval are small beside mtbf. interval: from one checkpoint to the next, its own time included.
double expected_waste(double cost, double interval, double mtbf, double restart);

// ---- of a run ------------------------------------------------------------------------------------------------------

struct Goodput {
  double virtual_s = 0;
  double step_s = 0;  // of a step that nothing disturbs
  std::int64_t steps = 0, steps_redone = 0;
  std::int64_t failures = 0;  // interruptions
  double ettr = 0;
  double redone_s = 0, checkpoints_s = 0, rest_s = 0;  // parts of the loss; rest: noticing, agreeing, rebuilding
  std::int64_t checkpoints = 0, checkpoints_given_up = 0;
  Spread detection_s, recovery_s;  // from the fault to its notice; from there to the next commit, less a step
  std::vector<std::pair<std::string, std::uint64_t>> faults;  // that came, by kind
  struct Formula {
    double cost_s = 0, interval_s = 0, mtbf_s = 0, restart_s = 0;
    double waste = 0, best_interval_s = 0;
  };
  std::optional<Formula> formula;  // where there were checkpoints at intervals, and failures
};
// step_s: measured apart. every_steps: between two checkpoints; 0: none.
Goodput goodput_of(const RunRecord& run, double step_s, std::int64_t every_steps);
Json goodput_json(const Goodput& goodput);
std::string goodput_text(const Goodput& goodput);

}  // namespace seeksim::harness
