// Matching, counting and drawing. A draw is a pure function of (seed, text of the rule, rank, number of the match).
#include "faults/trigger.h"

#include <algorithm>

namespace seeksim::faults {

using runtime::Op;
using runtime::OpKind;
using runtime::Phase;

namespace {

// splitmix64's finaliser: every bit of the input moves every bit of the output.
std::uint64_t scramble(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

std::uint64_t hash(std::string_view text) {
  std::uint64_t h = 0xcbf29ce484222325u;
  for (const char c : text) h = (h ^ std::uint8_t(c)) * 0x100000001b3u;
  return h;
}

bool moves_messages(OpKind op) {
  return is_collective(op) || op == OpKind::broadcast || op == OpKind::send || op == OpKind::recv ||
         op == OpKind::barrier;
}

// A run recovers by building a communicator and by the recovery agreement. A rule strikes there only if it says so:
// otherwise "the first operation after 3 s" would mostly mean the recovery from another fault.
bool needs_naming(OpKind op) { return op == OpKind::comm_create || op == OpKind::agree; }

// Acts of a rank by itself happen all the time, so a rule has to name them: by op, or by a phase that may consist of
// nothing else.
bool names_own_acts(const Trigger& when) {
  if (when.op || !when.phase) return when.op.has_value();
  switch (*when.phase) {
    case Phase::data:
    case Phase::forward:
    case Phase::backward:
    case Phase::recompute:
    case Phase::optimizer:
      return true;
    default:
      return false;
  }
}

bool names_it(const Trigger& when) {
  return when.op.has_value() || when.phase == Phase::recovery || when.phase == Phase::init;
}

}  // namespace

bool is_own_act(OpKind op) {
  switch (op) {
    case OpKind::compute:
    case OpKind::copy:
    case OpKind::data_load:
    case OpKind::inspect:
    case OpKind::host_compute:
    case OpKind::allocate:
    case OpKind::storage_read:
    case OpKind::storage_write:
    case OpKind::storage_sync:
    case OpKind::storage_rename:
    case OpKind::join:
      return true;
    default:
      return false;
  }
}

bool can_concern(const Rule& rule, OpKind op) {
  if (is_value(rule.kind) && !is_message(rule)) return op == OpKind::compute || op == OpKind::data_load;
  const FaultKind kind = rule.kind;
  if (is_data(kind)) return op == OpKind::data_load;
  if (kind == FaultKind::device_error || kind == FaultKind::kernel_hang)
    return op == OpKind::compute || (op == OpKind::copy && rule.when.op == op);
  if (kind == FaultKind::collective_mismatch) return is_collective(op);
  if (kind == FaultKind::init_failure) return op == OpKind::comm_create;
  if (kind == FaultKind::checkpoint_corrupt || kind == FaultKind::lost_checkpoint)
    return op == OpKind::storage_sync || op == OpKind::storage_rename;
  if (kind == FaultKind::clock_skew || kind == FaultKind::preemption_notice || kind == FaultKind::store_death)
    return false;  // conditions: they do not begin with an operation
  if (kind == FaultKind::straggler) return op == OpKind::compute;
  if (kind == FaultKind::slow_disk) return op == OpKind::storage_read || op == OpKind::storage_write;
  if (kind == FaultKind::nvme_read_error || kind == FaultKind::nvme_short_read) return op == OpKind::storage_read;
  if (is_file(kind)) return op == OpKind::storage_write;
  if (is_memory(kind)) return op == OpKind::allocate || (kind == FaultKind::oom && op == OpKind::comm_create);
  if (moves_messages(op)) return true;
  if (is_anywhere(kind) && is_own_act(op)) return names_own_acts(rule.when);
  return (is_anywhere(kind) || kind == FaultKind::collective_timeout) &&
         (op == OpKind::vote || op == OpKind::agree || op == OpKind::comm_create);
}

bool concerns_own_acts(const Rule& rule) {
  for (int i = 0; i < int(OpKind::count_); ++i) {
    const OpKind op = OpKind(i);
    if (is_own_act(op) && (!rule.when.op || *rule.when.op == op) && can_concern(rule, op)) return true;
  }
  return false;
}

bool is_timed(const Trigger& when) {
  return when.at_ns && !when.peer && !when.step && !when.micro_batch && !when.sample && !when.op && !when.phase &&
         !when.call;
}

bool could_match_on_any_rank(const Rule& rule, const Op& op) {
  const Trigger& when = rule.when;
  if (!can_concern(rule, op.kind)) return false;
  if (needs_naming(op.kind) && rule.kind != FaultKind::init_failure && !names_it(when)) return false;
  if (when.op && *when.op != op.kind) return false;
  if (when.step && *when.step != op.step) return false;
  if (when.micro_batch && *when.micro_batch != op.micro_batch) return false;
  if (when.sample && (*when.sample < op.sample || *when.sample >= op.sample + op.samples)) return false;
  if (when.layer && *when.layer != op.layer) return false;
  if (!when.tensor.empty() && when.tensor != op.tensor) return false;
  return !when.phase || *when.phase == op.phase;
}

RuleState::RuleState(const Rule& rule, std::size_t number, std::uint64_t seed, int twin)
    : rule_(with_defaults(rule)), number_(number) {
  status_.kind = rule_.kind;
  status_.text = text(rule);
  stream_ = scramble(scramble(seed ^ hash(status_.text)) + std::uint64_t(twin));
}

bool RuleState::matches(const Op& op, TimeNs now) const {
  const Trigger& when = rule_.when;
  if (when.rank && *when.rank != op.rank) return false;
  if (when.peer && *when.peer != op.peer) return false;
  if (when.at_ns && now < *when.at_ns) return false;
  return could_match_on_any_rank(rule_, op);
}

bool RuleState::draw(int rank, std::uint64_t match) const { return draw(rank, match, rule_.when.probability); }

bool RuleState::chance(double probability) { return draw(-2, chances_++, probability); }

bool RuleState::draw(int rank, std::uint64_t match, double probability) const {
  if (probability >= 1.0) return true;
  const std::uint64_t bits = scramble(scramble(stream_ + std::uint64_t(std::int64_t(rank))) + match);
  return double(bits >> 11) * 0x1p-53 < probability;
}

// For whoever wonders why the rule never fired.
void RuleState::meets(const Op& op) {
  if (rule_.when.rank && *rule_.when.rank != op.rank) return;
  status_.last_step = std::max(status_.last_step, op.step);
  if (rule_.when.step && *rule_.when.step != op.step) return;
  for (Met& met : status_.met) {
    if (met.kind == op.kind && met.phase == op.phase) return void(++met.times);
  }
  if (status_.met.size() < kMetKept) status_.met.push_back({op.kind, op.phase, 1});
}

bool RuleState::asks(const Op& op, TimeNs now) {
  if (rule_.count > 0 && status_.fired >= std::uint64_t(rule_.count)) return false;
  if (status_.fired == 0) meets(op);
  if (!matches(op, now)) return false;
  ++status_.matched;
  const std::uint64_t match = ++matches_of_rank_[op.rank];
  if (rule_.when.call && match < *rule_.when.call) return false;
  return draw(op.rank, match);
}

void RuleState::record(TimeNs now, int rank, const Op* op) {
  if (status_.fired++ == 0) {
    status_.first_fired_ns = now;
    if (op) status_.first_op = *op;
  }
  if (status_.fired_ns.size() < kFiringsKept) status_.fired_ns.push_back(now);
  also_hit(rank);
  if (heard_) heard_(number_, now, rank, op);
}

void RuleState::also_hit(int rank) {
  const auto at = std::lower_bound(status_.ranks.begin(), status_.ranks.end(), rank);
  if (at == status_.ranks.end() || *at != rank) status_.ranks.insert(at, rank);
}

}  // namespace seeksim::faults
