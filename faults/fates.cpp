// Combines the fates of one piece.
#include "faults/fates.h"

#include <algorithm>

namespace seeksim::faults {

using runtime::kForever;
using runtime::PieceFate;

MessageFault::MessageFault(RuleState& s) : state(s) {
  fate.drop = s.rule().kind == FaultKind::message_drop;
  fate.corrupt = s.rule().kind == FaultKind::message_corrupt || s.rule().kind == FaultKind::bit_flip;
  if (s.rule().kind == FaultKind::zombie_message) fate.replay_ns = s.rule().delay_ns;
  fate.corrupt_bit = s.rule().bit;
  fate.checksum = s.rule().checksum && s.rule().kind == FaultKind::message_corrupt;
  fate.rule = s.mark();
}

namespace {

void add_cut(PieceFate& to, const PieceFate& more) {
  if (more.down_from == kForever) return;
  const bool apart = more.down_until < to.down_from || to.down_until < more.down_from;
  if (to.down_from == kForever || (apart && more.down_from < to.down_from)) {
    to.down_from = more.down_from;
    to.down_until = more.down_until;
  } else if (!apart) {
    to.down_from = std::min(to.down_from, more.down_from);
    to.down_until = std::max(to.down_until, more.down_until);
  }
}

void add(PieceFate& to, const PieceFate& more) {
  to.delay_ns = runtime::later(to.delay_ns, more.delay_ns);
  to.slow_factor *= more.slow_factor;
  to.drop = to.drop || more.drop;
  if (to.replay_ns == 0) to.replay_ns = more.replay_ns;
  if (more.corrupt && !to.corrupt) {
    to.corrupt = true;
    to.corrupt_bit = more.corrupt_bit;
    to.checksum = more.checksum;
  }
  add_cut(to, more);
}

}  // namespace

const PieceFate* CombinedFates::combine(const std::vector<const PieceFate*>& parts) {
  if (parts.empty()) return nullptr;
  if (parts.size() == 1) return parts[0];
  const auto [entry, fresh] = known_.try_emplace(parts);
  if (fresh) {
    entry->second = *parts[0];
    for (std::size_t i = 1; i < parts.size(); ++i) add(entry->second, *parts[i]);
  }
  return &entry->second;
}

void CombinedFates::pass_on_touches() const {
  for (const auto& [parts, whole] : known_) {
    for (const PieceFate* part : parts) {
      const bool inside = whole.touched_ns >= part->down_from && whole.touched_ns < part->down_until;
      if (inside && part->touched_ns < 0) part->touched_ns = whole.touched_ns;
    }
  }
}

}  // namespace seeksim::faults
