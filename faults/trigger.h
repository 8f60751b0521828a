// When a rule fires: the pure part (does this Op, at this time, match?), the counting part (which match is it, how
// often has the rule fired, over all epochs and retries) and the drawing part (the rule's own random stream).
#pragma once

#include <map>
#include <utility>

#include "faults/plan.h"

namespace seeksim::faults {

constexpr bool is_link(FaultKind kind) {
  return kind == FaultKind::link_drop || kind == FaultKind::slow_link || kind == FaultKind::partition;
}
constexpr bool is_message(const Rule& rule) {
  return rule.kind == FaultKind::message_drop || rule.kind == FaultKind::message_corrupt ||
         rule.kind == FaultKind::zombie_message || rule.site == Site::message;
}
// Whether the kind changes numbers in a device's memory.
constexpr bool is_value(FaultKind kind) {
  return (kind >= FaultKind::nan_inject && kind <= FaultKind::token_imbalance) || kind == FaultKind::stale_gradient;
}
// Whether the kind refuses memory.
constexpr bool is_memory(FaultKind kind) { return kind == FaultKind::oom || kind == FaultKind::pinned_alloc_failure; }
// Whether the kind damages what goes to files or comes from them.
constexpr bool is_file(FaultKind kind) {
  return (kind >= FaultKind::nvme_read_error && kind <= FaultKind::disk_full) ||
         kind == FaultKind::checkpoint_corrupt || kind == FaultKind::lost_checkpoint;
}
// Whether the kind slows a device or a rank's disk: it begins at its first match and lasts.
constexpr bool is_slow(FaultKind kind) { return kind == FaultKind::straggler || kind == FaultKind::slow_disk; }
// Whether the kind can strike at anything that a rank does.
constexpr bool is_anywhere(FaultKind kind) {
  return kind == FaultKind::rank_crash || kind == FaultKind::node_crash || kind == FaultKind::pause;
}
constexpr bool is_data(FaultKind kind) { return kind == FaultKind::data_stall || kind == FaultKind::data_error; }
// Whether the kind stops or kills the host of a rank on its way into an operation, or fails what it asks for.
constexpr bool is_blocking(FaultKind kind) {
  return kind == FaultKind::collective_timeout || is_anywhere(kind) || is_data(kind) || kind == FaultKind::device_error;
}
// Whether the kind happens at a time, whatever the ranks do.
constexpr bool is_of_the_control_plane(FaultKind kind) {
  return kind == FaultKind::partition || kind == FaultKind::store_death;
}

// Acts of a rank by itself: launches, allocations, files, and waiting to be admitted. Only a rule that names the
// operation, or a phase of such acts, strikes there: "the third operation" means one that others take part in.
bool is_own_act(runtime::OpKind op);
// Whether the rule could match an act of a rank by itself.
bool concerns_own_acts(const Rule& rule);

// Whether a rule of this kind can happen in an operation of this kind at all.
bool can_concern(const Rule& rule, runtime::OpKind op);

// Whether a trigger names a time and no Op: it needs no match to begin.
bool is_timed(const Trigger& when);

// Everything in `when` about an Op that is the same on all ranks of a collective: kind, step, phase and micro-batch.
// For decisions that all ranks must make alike.
bool could_match_on_any_rank(const Rule& rule, const runtime::Op& op);

// One rule of a plan with its counters.
class RuleState {
 public:
  // seed: the world's. twin: how many equal rules come before this one. Neither a rule's place among the others nor
  // their number enters its stream, so a plan keeps all its draws when one rule is deleted.
  RuleState(const Rule& rule, std::size_t number, std::uint64_t seed, int twin);

  const Rule& rule() const { return rule_; }
  std::size_t number() const { return number_; }                     // 0-based, in the plan
  std::uint32_t mark() const { return std::uint32_t(number_) + 1; }  // as traces have it: 1-based, 0 is "none"

  // Whether the rule fires at this Op. Counts the match, so call it once for each Op. Does not record the firing.
  bool asks(const runtime::Op& op, TimeNs now);

  void record(TimeNs now, int rank, const runtime::Op* op);
  void also_hit(int rank);  // the other end of a link
  const RuleStatus& status() const { return status_; }
  void on_fired(FaultPlan::Listener listener) { heard_ = std::move(listener); }

  // Only for timed rules: drawn once.
  bool drawn_at_start() const { return draw(-1, 0); }
  bool drawn_at_start(double probability) const { return draw(-1, 1, probability); }
  // One more draw of the rule's stream, for random choices of the kind itself.
  bool chance(double probability);

 private:
  bool matches(const runtime::Op& op, TimeNs now) const;
  void meets(const runtime::Op& op);
  bool draw(int rank, std::uint64_t match) const;
  bool draw(int rank, std::uint64_t match, double probability) const;

  Rule rule_;
  std::size_t number_;
  std::uint64_t stream_;
  std::map<int, std::uint64_t> matches_of_rank_;  // by rank, so that no schedule can move draws
  std::uint64_t chances_ = 0;
  RuleStatus status_;
  FaultPlan::Listener heard_;
};

}  // namespace seeksim::faults
