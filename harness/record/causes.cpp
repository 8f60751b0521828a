#include "harness/record/causes.h"

namespace seeksim::harness {

int fault_behind(const RunRecord& run, const Recovery& recovery, TimeNs& injected_ns) {
  int best = -1;
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
    if (best >= 0 && (best_named > named || (best_named == named && fired <= injected_ns))) continue;
    best = int(i);
    best_named = named;
    injected_ns = fired;
  }
  return best;
}

}  // namespace seeksim::harness
