// Hanging, coming late, dying.
#include "faults/host_faults.h"

#include <algorithm>

namespace seeksim::faults {

using runtime::DiesAt;
using runtime::Op;

DiesAt HostFaults::enter(const Op& op) {
  if (gone_) throw runtime::RankDied{rank_};
  if (rules_.empty() && !watcher_) return DiesAt::never;
  Op ours = op;
  ours.rank = rank_;
  if (watcher_) watcher_(ours);
  DiesAt dies = DiesAt::never;
  for (RuleState* state : rules_) {
    const TimeNs now = clock_.now();  // a rule before this one may have held the host up
    if (!state->asks(ours, now)) continue;
    const DiesAt asked = apply(*state, ours, now);
    if (dies == DiesAt::never) dies = asked;
  }
  return dies;
}

bool HostFaults::watches_own_acts() const {
  return watcher_ || std::any_of(rules_.begin(), rules_.end(), [](const RuleState* state) {
           const auto& op = state->rule().when.op;
           return op && is_own_act(*op);
         });
}

DiesAt HostFaults::apply(RuleState& state, const Op& op, TimeNs now) {
  state.record(now, rank_, &op);
  switch (state.rule().mode) {
    case Mode::never:
      clock_.sleep_until(runtime::kForever);  // hung: it answers nothing until the world ends or kills it
      die();
    case Mode::late:
      clock_.sleep_until(runtime::later(now, state.rule().delay_ns));
      return DiesAt::never;
    case Mode::during:
      return DiesAt::in_flight;
    case Mode::after:
      return DiesAt::after;
    default:
      die();  // before
  }
}

void HostFaults::die() {
  gone_ = true;
  throw runtime::RankDied{rank_};
}

}  // namespace seeksim::faults
