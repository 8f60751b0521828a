// When a link is down or slow: windows of time that begin with the rule's first match, or at its time.
#include "faults/link_fault.h"

#include <algorithm>

namespace seeksim::faults {

using runtime::kForever;
using runtime::later;
using runtime::Op;
using runtime::PieceFate;

namespace {

// The time from one cut to the next, limited so that no time can wrap, whatever a scenario asks for.
TimeNs period(const Rule& rule) { return std::min(later(rule.down_ns, rule.up_ns), kForever / 4); }

bool is_for_good(const Rule& rule) {
  return rule.mode == Mode::permanent || (rule.kind == FaultKind::partition && rule.down_ns == 0);
}

}  // namespace

LinkFault::LinkFault(RuleState& state, const std::vector<int>& node_of) : state_(state), node_of_(node_of) {
  lost_.rule = late_.rule = state.mark();
  lost_.drop = true;
  late_.delay_ns = state.rule().delay_ns;
  if (is_timed(state.rule().when) && state.drawn_at_start()) since_ = *state.rule().when.at_ns;
}

bool LinkFault::covers(int from, int to) const {
  const Rule& rule = state_.rule();
  if (rule.kind == FaultKind::partition) {
    const auto on = [&](std::size_t side, int rank) {
      return std::find(rule.sides[side].begin(), rule.sides[side].end(), rank) != rule.sides[side].end();
    };
    return (on(0, from) && on(1, to)) || (on(1, from) && on(0, to));
  }
  if (rule.nodes) {
    from = node_of_[std::size_t(from)];
    to = node_of_[std::size_t(to)];
  }
  if (from == *rule.from && to == *rule.to) return true;
  return rule.both_directions && from == *rule.to && to == *rule.from;
}

const PieceFate* LinkFault::fate(const Op& piece, TimeNs now) {
  const bool timed = is_timed(state_.rule().when);
  if (since_ == kForever) {
    if (timed || !state_.asks(piece, now)) return nullptr;
    since_ = now;
  }
  const bool lossy = state_.rule().kind == FaultKind::link_drop && state_.rule().loss < 1.0;
  if (lossy) return now < since_ ? nullptr : lost_or_late(piece, now);
  const bool slow = state_.rule().kind == FaultKind::slow_link;
  Window* window = slow ? slowed(now) : cut(now);
  if (!window) return nullptr;
  if (window->from < 0) {
    window->from = piece.rank;
    window->to = piece.peer;
  }
  const bool acts_now = slow || now >= window->fate.down_from;
  if (acts_now && state_.status().fired == 0) record_both_ends(now, piece.rank, piece.peer, &piece);
  return &window->fate;
}

// Decides each message by itself: lost, or late by the link's delay. The rule fires with each lost message.
const PieceFate* LinkFault::lost_or_late(const Op& piece, TimeNs now) {
  if (state_.chance(state_.rule().loss)) {
    record_both_ends(now, piece.rank, piece.peer, &piece);
    return &lost_;
  }
  return late_.delay_ns > 0 ? &late_ : nullptr;
}

LinkFault::Window* LinkFault::slowed(TimeNs now) {
  if (now < since_) return nullptr;
  const auto [entry, fresh] = windows_.try_emplace(0);
  if (fresh) {
    PieceFate& fate = entry->second.fate;
    fate.delay_ns = state_.rule().delay_ns;
    fate.slow_factor = 1.0 / state_.rule().factor;
    fate.rule = state_.mark();
  }
  return &entry->second;
}

LinkFault::Window* LinkFault::cut(TimeNs now) {
  const Rule& rule = state_.rule();
  const int number = window_at(now);
  if (number < 0) return nullptr;
  const auto [entry, fresh] = windows_.try_emplace(number);
  if (fresh) {
    PieceFate& fate = entry->second.fate;
    fate.down_from = later(since_, TimeNs(number) * period(rule));
    fate.down_until = is_for_good(rule) ? kForever : later(fate.down_from, rule.down_ns);
    fate.rule = state_.mark();
  }
  return &entry->second;
}

int LinkFault::window_at(TimeNs now) const {
  const Rule& rule = state_.rule();
  if (is_for_good(rule) || now < since_) return 0;
  const TimeNs whole = (now - since_) / period(rule);
  const TimeNs number = now - since_ - whole * period(rule) < rule.down_ns ? whole : whole + 1;
  return number < rule.cycles ? int(number) : -1;
}

void LinkFault::record_both_ends(TimeNs now, int from, int to, const Op* op) {
  state_.record(now, from, op);
  state_.also_hit(to);
}

void LinkFault::record_what_the_transport_saw() {
  if (state_.status().fired > 0) return;
  for (const auto& [number, window] : windows_) {
    if (window.fate.touched_ns < 0) continue;
    record_both_ends(window.fate.touched_ns, window.from, window.to, nullptr);
    return;
  }
}

}  // namespace seeksim::faults
