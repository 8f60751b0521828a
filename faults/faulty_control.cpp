// Preemption notices: which rank gets notice to leave, and when.
#include "faults/faulty_control.h"

#include <algorithm>

namespace seeksim::faults {

TimeNs gone_at(const Rule& notice) { return runtime::later(notice.when.at_ns.value_or(0), notice.notice_ns); }

bool is_called_off(const RuleState& notice) {
  return notice.rule().cancelled > 0 && notice.drawn_at_start(notice.rule().cancelled);
}

// A notice is given from its time on; one that is called off, until halfway to its end.
TimeNs FaultyControlPlane::notice() {
  TimeNs leaves = inner_.notice();
  const TimeNs now = clock_.now();
  for (RuleState* state : notices_) {
    const Rule& rule = state->rule();
    const TimeNs told = *rule.when.at_ns;
    if (now < told) continue;
    if (state->status().fired == 0) state->record(now, rank_, nullptr);
    if (is_called_off(*state) && now >= runtime::later(told, rule.notice_ns / 2)) continue;
    leaves = std::min(leaves, gone_at(rule));
  }
  return shown_.believed(leaves);
}

}  // namespace seeksim::faults
