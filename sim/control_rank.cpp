// A rank's side of the control plane: what it sends to the centre, and how it waits for what comes back.
#include <fmt/format.h>

#include <algorithm>

#include "sim/control.h"
#include "sim/core.h"

namespace seeksim::sim {

using runtime::Agreement;
using runtime::Ballot;
using runtime::ErrorKind;
using runtime::Op;
using runtime::OpKind;
using runtime::SeamError;
using runtime::TakenIn;

namespace {

std::uint64_t combine(std::uint64_t a, std::uint64_t b, std::uint64_t c = 0) {
  std::uint64_t h = (a ^ b * 0x9e3779b97f4a7c15ull ^ c * 0xc2b2ae3d27d4eb4full) * 0xff51afd7ed558ccdull;
  return h ^ h >> 33;
}

// What a rank learns, without times: for the outcome of an order.
std::uint64_t told(const ControlCenter::Key& key, const Answer& answer) {
  std::uint64_t h = combine(key.digest(), std::uint64_t(answer.kind));
  if (answer.agreement == nullptr) return h;
  for (const int dead : answer.agreement->dead) h = combine(h, std::uint64_t(dead), 1);
  for (std::size_t i = 0; i < answer.agreement->members.size(); ++i) {
    const Ballot& ballot = answer.agreement->ballots[i];
    h = combine(h, std::uint64_t(answer.agreement->members[i]), ballot.ok ? 2 : 3 + std::uint64_t(ballot.error));
    h = combine(h, std::uint64_t(ballot.last_committed), std::uint64_t(ballot.stuck_sequence));
    h = combine(h, std::uint64_t(ballot.missing_peer), std::uint64_t(ballot.words[0]));
  }
  return h;
}

}  // namespace

std::vector<int> SimControl::members() const { return core_.control.members(epoch_); }

bool SimControl::revoked(std::uint32_t epoch) const {
  core_.loop.touch(object(ObjectKind::signals, std::uint64_t(rank_.host.rank())), Access::read);
  return rank_.signals.revoked >= std::int64_t(epoch);
}

void SimControl::revoke(std::uint32_t epoch, const Op& op, ErrorKind why) {
  const int me = rank_.host.rank();
  if (rank_.host.dying() || core_.control.fenced(me) || revoked(epoch)) return;
  core_.tell_apart(me, fmt::format("rank {} revokes an epoch: {}", me, name(why)));
  core_.loop.decided(me, combine(0x4e, epoch, std::uint64_t(why)));
  rank_.signals.revoked = std::int64_t(epoch);
  core_.story(me, fmt::format("revokes epoch {}: {} in {}", epoch, name(why), describe(op)));
  core_.control.send_revoke(me, epoch);
}

void SimControl::hear_of_revoke(std::uint32_t epoch) {
  rank_.signals.revoked = std::max(rank_.signals.revoked, std::int64_t(epoch));
  const Blocked blocked = rank_.host.blocked();
  if (blocked == Blocked::event || blocked == Blocked::rendezvous) core_.loop.wake(rank_.host);
}

Agreement SimControl::agree(const Op& op, std::uint32_t epoch, const Ballot& ballot, TimeNs deadline) {
  const int me = rank_.host.rank();
  const bool vote = op.kind != OpKind::agree;
  if (!vote) core_.tell_apart(me, fmt::format("rank {} asks who is alive", me));
  const TimeNs asked = core_.loop.now();
  if (core_.control.fenced(me)) throw SeamError(ErrorKind::fenced, op, "the others have declared this rank dead");
  ControlCenter::Key key{epoch, op.kind, vote ? op.step : 0, op.sequence, 0};
  key.instance = calls_[{key.epoch, std::uint8_t(key.kind), key.step, key.sequence}]++;
  if (calls_.size() > kRemembered) calls_.erase(calls_.begin());
  answer_ = {};
  waits_in_ = describe(op);
  core_.control.send_ballot(me, key, ballot, deadline);
  // The centre alone decides, even when this rank knows of a revoke or is past the deadline. A decision of its own
  // might differ from the others' answer. So a rank that hears nothing cannot go on: the others may have gone on.
  const TimeNs cut_off = runtime::later(std::max(deadline, core_.loop.now()), kCutOff);
  while (answer_.kind == Answer::Kind::none) {
    rank_.host.block(Blocked::agreement, cut_off);
    if (rank_.host.dying()) throw runtime::RankDied{me};
    core_.loop.touch(object(ObjectKind::answer, std::uint64_t(me)), Access::read);
    if (answer_.kind == Answer::Kind::none && core_.loop.now() >= cut_off)
      throw SeamError(ErrorKind::fenced, op,
                      "the control plane does not answer; the others may continue without this rank");
  }
  core_.loop.decided(me, told(key, answer_));
  if (core_.plan.steady) rank_.device.course().did(op, asked, core_.loop.now());
  switch (answer_.kind) {
    case Answer::Kind::fenced:
      throw SeamError(ErrorKind::fenced, op, "the others have declared this rank dead");
    case Answer::Kind::cut_short:
      throw SeamError(ErrorKind::revoked, op, "the vote was cut short by a revoke");
    default:
      return *answer_.agreement;
  }
}

void SimControl::hear_answer(const Answer& answer) {
  answer_ = answer;
  if (rank_.host.blocked() == Blocked::agreement) core_.loop.wake(rank_.host);
}

void SimControl::enter_epoch(std::uint32_t epoch, std::span<const int> members) {
  Op op;
  op.kind = OpKind::agree;
  op.rank = rank_.host.rank();
  op.epoch = epoch;
  if (core_.control.fenced(op.rank)) throw SeamError(ErrorKind::fenced, op, "the others have declared this rank dead");
  core_.control.enter(epoch, members, op);
  core_.loop.decided(op.rank, combine(0x45, epoch, std::uint64_t(members.size())));
  epoch_ = epoch;
}

void SimControl::stopped_until(TimeNs when) { core_.control.falls_silent(rank_.host.rank(), when); }

TakenIn SimControl::join(const Op& op, TimeNs deadline) {
  const int me = rank_.host.rank();
  core_.tell_apart(me, fmt::format("rank {} waits to be admitted", me));
  answer_ = {};
  waits_in_ = describe(op);
  core_.control.send_join(me, true);
  while (answer_.kind != Answer::Kind::taken_in) {
    core_.loop.touch(object(ObjectKind::answer, std::uint64_t(me)), Access::read);
    if (answer_.kind == Answer::Kind::run_is_over)
      throw SeamError(ErrorKind::no_progress, op, "the run ended without this rank");
    if (core_.loop.now() >= deadline) {
      core_.control.send_join(me, false);
      throw SeamError(ErrorKind::timeout, op, "no member admitted this rank");
    }
    rank_.host.block(Blocked::agreement, deadline);
    if (rank_.host.dying()) throw runtime::RankDied{me};
  }
  epoch_ = answer_.taken_in->epoch;
  return *answer_.taken_in;
}

}  // namespace seeksim::sim
