// A Clock that shows a wrong time: off by a constant, too fast, or put forward or back at some time. The true time is
// the simulator's or the machine's monotonic clock. What a rank computes from its clock is in its own time. Deadlines
// are converted to true time at each seam, like a timeout on a monotonic clock.
#pragma once

#include <vector>

#include "faults/trigger.h"
#include "runtime/seams/bounded.h"

namespace seeksim::faults {

class FaultyClock final : public runtime::Clock {
 public:
  FaultyClock(int rank, runtime::Clock& inner, std::vector<RuleState*> rules)
      : rank_(rank), inner_(inner), rules_(std::move(rules)) {}

  TimeNs now() const override { return shown(inner_.now()); }
  void sleep_until(TimeNs t) override { inner_.sleep_until(true_time(t)); }
  // From this rank's time to the true time.
  TimeNs true_time(TimeNs believed) const {
    if (rules_.empty() || believed == runtime::kForever) return believed;
    const TimeNs now = inner_.now();
    return runtime::shifted(now, runtime::shifted(believed, -shown(now)));
  }
  // From the true time to this rank's time.
  TimeNs believed(TimeNs t) const {
    if (rules_.empty() || t == runtime::kForever) return t;
    const TimeNs now = inner_.now();
    return runtime::shifted(shown(now), runtime::shifted(t, -now));
  }
  bool skewed() const { return !rules_.empty(); }

 private:
  TimeNs shown(TimeNs now) const {
    TimeNs time = now;
    for (RuleState* state : rules_) {
      const Rule& rule = state->rule();
      const TimeNs from = rule.when.at_ns.value_or(0);
      if (now < from) continue;
      if (state->status().fired == 0) state->record(now, rank_, nullptr);
      const TimeNs drift = runtime::to_time_ns(double(now - from) * rule.drift_ppm * 1e-6);
      time = runtime::shifted(time, runtime::shifted(rule.offset_ns, drift));
    }
    return time;
  }

  int rank_;
  runtime::Clock& inner_;
  std::vector<RuleState*> rules_;
};

}  // namespace seeksim::faults
