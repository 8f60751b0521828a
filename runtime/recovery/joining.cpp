#include "runtime/recovery/joining.h"

#include "runtime/launch/launcher.h"

namespace seeksim::runtime {
namespace {

Op op_of(const Rank& rank, OpKind kind, const char* about, const char* site) {
  Op op;
  op.kind = kind;
  op.phase = Phase::recovery;
  op.epoch = rank.control.epoch();
  op.rank = rank.id;
  op.step = -1;  // a joining rank knows of none
  op.tensor = about;
  op.site = site;
  return op;
}

}  // namespace

std::optional<HandOver> wait_to_join(Rank& rank, const TrainPlan& plan) {
  try {
    rank.control.join(op_of(rank, OpKind::join, "members", SEEKSIM_SITE), kForever);
  } catch (const SeamError& error) {
    if (error.kind() == ErrorKind::no_progress) return std::nullopt;
    throw;
  }
  return hand_over(rank, plan, std::nullopt);
}

HandOver hand_over(Rank& rank, const TrainPlan& plan, const std::optional<HandOver>& known) {
  const Op op = op_of(rank, OpKind::hand_over, "run state", SEEKSIM_SITE);
  Ballot ballot;
  if (known) ballot.hand_over = to_words(*known);
  const TimeNs patience = later(plan.recovery.watchdog_ns, plan.recovery.agree_ns);
  const Agreement agreement = rank.control.agree(op, op.epoch, ballot, later(rank.clock.now(), patience));
  if (!agreement.dead.empty()) {
    throw SeamError(ErrorKind::remote_error, op, "rank " + std::to_string(agreement.dead.front()) + " did not vote");
  }
  for (const Ballot& other : agreement.ballots) {
    if (!other.hand_over.empty()) return hand_over_from(other.hand_over);
  }
  throw SeamError(ErrorKind::mismatch, op, "no member knows the state of the run");
}

}  // namespace seeksim::runtime
