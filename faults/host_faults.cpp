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
  if (watcher_) watcher_(ours, clock_.now());
  DiesAt dies = DiesAt::never;
  for (RuleState* state : rules_) {
    const TimeNs now = clock_.now();  // an earlier rule may have delayed the host
    if (!state->asks(ours, now)) continue;
    const DiesAt asked = apply(*state, ours, now);
    if (dies == DiesAt::never) dies = asked;
  }
  return dies;
}

bool HostFaults::watches_own_acts() const {
  return watcher_ || std::any_of(rules_.begin(), rules_.end(),
                                 [](const RuleState* state) { return concerns_own_acts(state->rule()); });
}

namespace {

std::string_view name_of(int code) {
  switch (code) {
    case 214:
      return "uncorrectable ECC error";
    case 220:
      return "uncorrectable NVLink error";
    default:
      return "contained memory error";
  }
}

}  // namespace

void HostFaults::fail_device(const Rule& rule, const Op& op) {
  lost_for_good_ = rule.sticky;
  const auto kind = rule.sticky ? runtime::ErrorKind::device_lost : runtime::ErrorKind::closure;
  lost_.emplace(kind, op, "CUDA error " + std::to_string(rule.code) + ", " + std::string(name_of(rule.code)), true);
}

namespace {

// The operation that fails is narrowed to the sample that the rule names.
runtime::SeamError data_error(const Rule& rule, Op op) {
  if (rule.when.sample) op.sample = *rule.when.sample, op.samples = 1;
  const std::string what = op.samples == 1 ? "sample " + std::to_string(op.sample) : "it";
  return {runtime::ErrorKind::data_error, op, "the data loader cannot bring " + what + " (injected)", true};
}

}  // namespace

void HostFaults::check_device() {
  if (!lost_) return;
  const runtime::SeamError error = *lost_;
  if (!lost_for_good_) lost_.reset();
  throw runtime::SeamError(error);
}

DiesAt HostFaults::apply(RuleState& state, const Op& op, TimeNs now) {
  const Rule& rule = state.rule();
  state.record(now, rank_, &op);
  switch (rule.kind) {
    case FaultKind::node_crash:
      if (machine_dies_) machine_dies_(state);
      die();
    case FaultKind::pause:
    case FaultKind::data_stall:
      clock_.sleep_until(runtime::later(now, rule.delay_ns));
      return DiesAt::never;
    case FaultKind::data_error:
      throw data_error(rule, op);
    case FaultKind::device_error:
      fail_device(rule, op);
      return DiesAt::never;
    default:
      break;
  }
  switch (rule.mode) {
    case Mode::never:
      clock_.sleep_until(runtime::kForever);  // hangs: does not answer until the world ends or kills it
      die();
    case Mode::late:
      clock_.sleep_until(runtime::later(now, rule.delay_ns));
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
