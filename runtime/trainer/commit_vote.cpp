#include "runtime/trainer/commit_vote.h"

#include <algorithm>

#include "runtime/launch/poison.h"

namespace seeksim::runtime {
namespace {

// Words of a ballot.
constexpr std::size_t kSkipWord = 0;
constexpr std::size_t kCorruptWord = 1;  // 1 + the micro-batch that was computed twice with different bits
constexpr std::size_t kRangeWord = 2;    // ... and where in the gradient space
constexpr std::size_t kPoisonWord = 3;   // 1: found; 2: at its source

}  // namespace

const char* name(Vote about) {
  switch (about) {
    case Vote::step:
      return "step";
    case Vote::checkpoint:
      return "checkpoint";
    case Vote::outer:
      return "outer step";
    case Vote::members:
      return "members";
    case Vote::shards:
      return "shards";
    case Vote::state:
      return "state";
    case Vote::end:
      return "end";
  }
  return "";
}

bool CommitVote::on(Vote about, bool good) {
  Ballot ballot;
  ballot.words[kSkipWord] = good ? 0 : 1;
  ballot.words[kCorruptWord] = corrupt_ ? 1 + corrupt_->micro_batch : 0;
  ballot.words[kRangeWord] = corrupt_ ? corrupt_->offset : 0;
  ballot.words[kPoisonWord] = poison_.where.empty() ? 0 : poison_.at_source ? 2 : 1;
  for (VoteRider* rider : riders_) rider->tell(about, ballot);
  const Agreement agreement = ask(name(about), ballot);
  const bool all_good = std::all_of(agreement.ballots.begin(), agreement.ballots.end(),
                                    [](const Ballot& other) { return other.words[kSkipWord] == 0; });
  for (VoteRider* rider : riders_) rider->hear(about, agreement, all_good);
  return all_good;
}

Agreement CommitVote::ask(const char* about, Ballot ballot) {
  Op op = bench_.op(OpKind::vote, Phase::commit, about, SEEKSIM_SITE);
  op.epoch = world_.epoch();
  ballot.last_committed = op.step - 1;
  ballot.last_joined = world_.comm().last_sequence();
  // A member that misses this deadline is dead and fenced. One that waits in vain in the reduction is not: its
  // watchdog, which ends a little after ours would, revokes the epoch and so cuts the vote short for all.
  const RecoveryPlan& plan = bench_.plan.recovery;
  const TimeNs patience = later(plan.watchdog_ns, plan.agree_ns);
  ControlPlane& control = bench_.rank.control;
  ballot.leaves_at_ns = control.notice();
  const Agreement agreement = bench_.planted->agree(control, op, ballot, later(bench_.rank.clock.now(), patience));
  if (!agreement.dead.empty()) {
    throw SeamError(ErrorKind::remote_error, op, "rank " + std::to_string(agreement.dead.front()) + " did not vote");
  }
  stop_if_poisoned(agreement);
  redo_where_bits_differ(op, agreement);
  bench_.planted->agreed(control, op);
  hear_of_members(agreement);
  return agreement;
}

void CommitVote::hear_of_members(const Agreement& agreement) {
  waiting_ = takes_in(bench_.plan.recovery) ? agreement.joiners : std::vector<int>();
  leaving_.clear();
  for (std::size_t i = 0; i < agreement.ballots.size(); ++i) {
    if (agreement.ballots[i].leaves_at_ns != kForever) leaving_.push_back(agreement.members[i]);
  }
}

// All heard in the same vote which ranks computed other bits the second time, and where: no rank uses the results.
void CommitVote::redo_where_bits_differ(Op op, const Agreement& agreement) const {
  std::string detail;
  for (std::size_t i = 0; i < agreement.ballots.size(); ++i) {
    const Ballot& ballot = agreement.ballots[i];
    if (ballot.words[kCorruptWord] == 0) continue;
    const int culprit = agreement.members[i];
    const std::int64_t micro_batch = ballot.words[kCorruptWord] - 1;
    const char* const parameter = gradient_name(parameters_, Index(ballot.words[kRangeWord]));
    detail += (detail.empty() ? "rank " : ", rank ") + std::to_string(culprit) + " computed the gradient of '" +
              parameter + "' in micro-batch " + std::to_string(micro_batch) + " twice, with different bits";
    if (op.peer >= 0 && culprit != bench_.rank.id) continue;  // a rank that erred names itself
    op.peer = culprit;
    op.micro_batch = std::int32_t(micro_batch);
    op.tensor = parameter;
  }
  if (detail.empty()) return;
  op.kind = OpKind::compute;
  op.phase = Phase::backward;
  throw SeamError(ErrorKind::corrupt_compute, op, detail);
}

// The rank that has it at its source is named, not the one that saw first what came of it.
void CommitVote::stop_if_poisoned(const Agreement& agreement) const {
  std::size_t worst = 0;
  for (std::size_t i = 0; i < agreement.ballots.size(); ++i) {
    if (agreement.ballots[i].words[kPoisonWord] > agreement.ballots[worst].words[kPoisonWord]) worst = i;
  }
  if (agreement.ballots[worst].words[kPoisonWord] == 0) return;
  if (agreement.members[worst] == bench_.rank.id) throw UnwrittenMemory(poison_.where);
  const std::string here = poison_.where.empty() ? "" : "; and here, " + poison_.where;
  throw UnwrittenMemory("uninitialised memory reached a result of rank " + std::to_string(agreement.members[worst]) +
                        here);
}

}  // namespace seeksim::runtime
