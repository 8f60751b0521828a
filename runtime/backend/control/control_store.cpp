#include "runtime/backend/control/control_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace seeksim::runtime {
namespace {
// How many agreements are remembered after they are over; a rank that comes later has been fenced.
constexpr std::size_t kPollsRemembered = 64;
}  // namespace

ControlStore::ControlStore(int ranks, TimeNs heartbeat_timeout_ns, Outbox& outbox)
    : outbox_(outbox),
      heartbeat_timeout_ns_(heartbeat_timeout_ns),
      fenced_(std::size_t(ranks), false),
      known_dead_(std::size_t(ranks), false),
      done_(std::size_t(ranks), false),
      last_beat_(std::size_t(ranks), -1) {
  std::vector<int>& all = members_[0];
  all.resize(std::size_t(ranks));
  std::iota(all.begin(), all.end(), 0);
}

const std::vector<int>& ControlStore::members(std::uint32_t epoch) const {
  const auto found = members_.find(epoch);
  if (found == members_.end()) throw Malformed(fmt::format("epoch {} was never entered", epoch));
  return found->second;
}

void ControlStore::ballot(int rank, const PollKey& key, const Ballot& ballot, TimeNs now, TimeNs timeout_ns) {
  if (fenced(rank)) return outbox_.answer(rank, {Answer::Kind::fenced, {}});
  members(key.epoch);
  const bool vote = key.kind != OpKind::agree;
  if (polls_.size() > kPollsRemembered && polls_.begin()->second.over() && polls_.begin()->first < key)
    polls_.erase(polls_.begin());
  Poll& poll = polls_[key];
  if (vote && revoked_ >= std::int64_t(key.epoch) && !poll.decided) poll.cut_short = true;
  if (poll.cut_short) return outbox_.answer(rank, {Answer::Kind::cut_short, {}});
  if (poll.decided) {  // without it: it was no member, or came too late
    fenced_[std::size_t(rank)] = true;
    return outbox_.answer(rank, {Answer::Kind::fenced, {}});
  }
  if (poll.ballots.empty()) poll.deadline = later(now, timeout_ns);  // the first one's
  poll.ballots[rank] = ballot;
  decide_if_complete(key, poll);
}

void ControlStore::decide_if_complete(const PollKey& key, Poll& poll) {
  const std::vector<int>& all = members(key.epoch);
  const bool complete = std::all_of(all.begin(), all.end(), [&](int member) {
    return known_dead_[std::size_t(member)] || poll.ballots.contains(member);
  });
  if (complete && !poll.ballots.empty()) decide(key, poll);
}

void ControlStore::decide(const PollKey& key, Poll& poll) {
  poll.decided = true;
  Answer answer{Answer::Kind::decided, {}};
  answer.agreement.epoch = key.epoch;
  for (const auto& [rank, ballot] : poll.ballots) {
    answer.agreement.members.push_back(rank);
    answer.agreement.ballots.push_back(ballot);
  }
  for (const int member : members(key.epoch)) {
    if (poll.ballots.contains(member)) continue;
    answer.agreement.dead.push_back(member);
    if (is_silent(member)) answer.agreement.silent.push_back(member);
    fenced_[std::size_t(member)] = true;
    outbox_.story(
        member, fmt::format("did not answer the {} of epoch {}: declared dead and fenced", name(key.kind), key.epoch));
  }
  for (const int member : answer.agreement.members) outbox_.answer(member, answer);
  poll.ballots.clear();
}

void ControlStore::revoke(int rank, std::uint32_t epoch) {
  if (!fenced(rank)) revoke_for_all(epoch, rank);
}

// A revoke that comes before a vote is decided cuts it short for all; after that it comes too late, for all.
void ControlStore::revoke_for_all(std::uint32_t epoch, int but) {
  if (revoked_ >= std::int64_t(epoch)) return;
  const std::vector<int>& all = members(epoch);
  revoked_ = std::int64_t(epoch);
  for (auto& [key, poll] : polls_) {
    if (key.kind == OpKind::agree || key.epoch > epoch || poll.over()) continue;
    poll.cut_short = true;
    for (const auto& [rank, ballot] : poll.ballots) outbox_.answer(rank, {Answer::Kind::cut_short, {}});
    poll.ballots.clear();
  }
  for (const int member : all) {
    if (member != but) outbox_.revoked(member, epoch);
  }
}

std::string ControlStore::enter(int rank, std::uint32_t epoch, std::vector<int> entering) {
  if (fenced(rank)) return "the others have declared this rank dead";
  std::sort(entering.begin(), entering.end());
  for (const int member : entering) {
    if (member < 0 || std::size_t(member) >= fenced_.size()) throw Malformed("a member that is no rank");
  }
  const auto [it, fresh] = members_.try_emplace(epoch, entering);
  if (it->second != entering) return fmt::format("epoch {} was entered with other members before", epoch);
  newest_epoch_ = std::max(newest_epoch_, epoch);
  // It fell silent, or died, after the members had been agreed on.
  const bool hopeless = std::any_of(entering.begin(), entering.end(), [&](int member) { return is_silent(member); });
  if (fresh && hopeless) revoke_for_all(epoch, -1);
  return {};
}

void ControlStore::died(int rank) {
  if (done_[std::size_t(rank)] || known_dead_[std::size_t(rank)]) return;
  outbox_.story(rank, "closed its connection: its process has ended");
  is_dead(rank);
}

// Agreements need not wait for it any more.
void ControlStore::is_dead(int rank) {
  known_dead_[std::size_t(rank)] = true;
  for (auto& [key, poll] : polls_) {
    if (!poll.over()) decide_if_complete(key, poll);
  }
}

void ControlStore::done(int rank) { done_[std::size_t(rank)] = true; }

// ---- time ----------------------------------------------------------------------------------------------------------

void ControlStore::beat(int rank, TimeNs now) { last_beat_[std::size_t(rank)] = now; }

bool ControlStore::is_silent(int rank) const {
  return std::find(silent_.begin(), silent_.end(), rank) != silent_.end();
}

void ControlStore::tick(TimeNs now) {
  for (auto& [key, poll] : polls_) {
    if (!poll.over() && poll.deadline <= now) decide(key, poll);
  }
  if (heartbeat_timeout_ns_ <= 0) return;
  for (std::size_t rank = 0; rank < last_beat_.size(); ++rank) {
    const bool watched = last_beat_[rank] >= 0 && !fenced_[rank] && !known_dead_[rank] && !done_[rank];
    if (watched && now - last_beat_[rank] > heartbeat_timeout_ns_) declare_silent(int(rank));
  }
}

void ControlStore::declare_silent(int rank) {
  const std::vector<int>& all = members(newest_epoch_);
  if (!std::binary_search(all.begin(), all.end(), rank)) return;
  fenced_[std::size_t(rank)] = true;
  silent_.push_back(rank);
  outbox_.story(rank, fmt::format("sends no heartbeats: declared dead and fenced, epoch {} is revoked", newest_epoch_));
  for (auto& [key, poll] : polls_) {
    if (!poll.over()) poll.ballots.erase(rank);  // its earlier ballot does not count: no rank can go on with it
  }
  revoke_for_all(newest_epoch_, -1);  // itself too: a process that was only stopped hears of it when it runs again
  is_dead(rank);
}

}  // namespace seeksim::runtime
