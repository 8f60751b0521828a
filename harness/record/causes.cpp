#include "harness/record/causes.h"

namespace seeksim::harness {

namespace {

Cause cause_of(const RunRecord& run, const Recovery& recovery) {
  Cause best;
  bool best_named = false;
  for (std::size_t i = 0; i < run.faults.size(); ++i) {
    const faults::RuleStatus& rule = run.faults[i];
    TimeNs fired = -1;
    for (const TimeNs at : rule.fired_ns) {
      if (at <= recovery.detected_ns) fired = at;
    }
    if (rule.fired_ns.empty() && rule.first_fired_ns <= recovery.detected_ns) fired = rule.first_fired_ns;
    if (fired < 0) continue;
    bool named = false;
    for (const int rank : rule.ranks) {
      for (const int culprit : recovery.diagnosis.culprits) named |= rank == culprit;
    }
    if (best.fault >= 0 && (best_named > named || (best_named == named && fired <= best.injected_ns))) continue;
    best = {int(i), fired};
    best_named = named;
  }
  return best;
}

}  // namespace

std::vector<Cause> causes_of(const RunRecord& run) {
  std::vector<Cause> causes;
  for (const Recovery& recovery : run.detection.recoveries) causes.push_back(cause_of(run, recovery));
  return causes;
}

}  // namespace seeksim::harness
