// The centre: agreements, revokes, fencing, admission. A rank's side is in control_rank.cpp.
#include "sim/control.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

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
// A small message over the management network, one way.
constexpr TimeNs kMessage = 100 * runtime::kMicrosecond;

const Object kCenter = object(ObjectKind::center, 0);
const Object kJoiners = object(ObjectKind::center, 1);
}  // namespace

// ---- the centre --------------------------------------------------------------------------------------------------

std::uint64_t ControlCenter::Key::digest() const {
  std::uint64_t h = std::uint64_t(kind) << 32 | epoch;
  for (const std::uint64_t part : {std::uint64_t(step), sequence, std::uint64_t(instance)}) {
    h = (h ^ part * 0x9e3779b97f4a7c15ull) * 0xff51afd7ed558ccdull;
    h ^= h >> 33;
  }
  return h;
}

ControlCenter::ControlCenter(Core& core, std::uint64_t seed, int ranks, int members)
    : core_(core),
      random_(seed, Stream::control),
      fenced_(std::size_t(ranks), false),
      known_dead_(std::size_t(ranks), false),
      silent_(std::size_t(ranks), false),
      arrivals_(std::size_t(ranks), 0),
      ended_(std::size_t(ranks), false),
      lives_(std::size_t(ranks), 0),
      replies_(std::size_t(ranks), 0) {
  std::vector<int>& all = members_[0];
  all.resize(std::size_t(members));
  std::iota(all.begin(), all.end(), 0);
}

bool ControlCenter::fenced(int rank) const {
  core_.loop.touch(object(ObjectKind::fence, std::uint64_t(rank)), Access::read);
  return fenced_[std::size_t(rank)];
}

void ControlCenter::fence(int rank, bool fenced) {
  core_.loop.touch(object(ObjectKind::fence, std::uint64_t(rank)), Access::write);
  fenced_[std::size_t(rank)] = fenced;
}

// Messages of one rank arrive in the order in which it sent them.
void ControlCenter::to_center(int rank, std::function<void()> arrive) {
  TimeNs& last = arrivals_[std::size_t(rank)];
  last = std::max(last, runtime::later(gets_through(rank), latency()));
  if (last < runtime::kForever) core_.loop.call_at(last, arrival(Arrival::to_center, rank, 0), std::move(arrive));
}

TimeNs ControlCenter::gets_through(int rank) const {
  TimeNs when = core_.loop.now();
  for (const ControlOutage& out : outages_) {
    const bool cut = out.all || std::find(out.ranks.begin(), out.ranks.end(), rank) != out.ranks.end();
    if (cut && when >= out.from && when < out.until) when = out.until;
  }
  return when;
}

// At most one of two parts has more than half of the members, or half of them and the lowest.
void ControlCenter::split(ControlOutage outage) {
  core_.loop.touch(kCenter, Access::write);
  const std::vector<int>& all = members(core_.transport.newest_epoch);
  std::size_t here = 0;
  for (const int rank : outage.ranks) here += std::binary_search(all.begin(), all.end(), rank);
  const bool lowest = std::find(outage.ranks.begin(), outage.ranks.end(), all.front()) != outage.ranks.end();
  if (2 * here > all.size() || (2 * here == all.size() && lowest)) std::swap(outage.ranks, outage.others);
  outages_.push_back(std::move(outage));
}

TimeNs ControlCenter::stands_until() const {
  TimeNs when = core_.loop.now();
  for (const ControlOutage& out : outages_)
    if (out.all && when >= out.from && when < out.until) when = out.until;
  return when;
}

TimeNs ControlCenter::latency() {
  if (core_.plan.steady) return kMessage;
  return core_.loop.untimed() ? 0 : TimeNs(double(kMessage) * (0.75 + 0.5 * random_.unit()));
}

void ControlCenter::enter(std::uint32_t epoch, std::span<const int> members, const Op& op) {
  std::vector<int> sorted(members.begin(), members.end());
  std::sort(sorted.begin(), sorted.end());
  const auto [it, fresh] = members_.try_emplace(epoch, sorted);
  if (it->second != sorted)
    throw SeamError(ErrorKind::mismatch, op, fmt::format("epoch {} was entered with other members before", epoch));
  core_.transport.newest_epoch = std::max(core_.transport.newest_epoch, epoch);
  core_.loop.touch(kJoiners, Access::read);
  if (!joiners_.empty()) core_.loop.touch(kCenter, Access::write);
  for (const int member : fresh ? sorted : std::vector<int>()) {
    if (joiners_.contains(member) && announced_.contains(member)) take_in(member, epoch);
  }
  // It fell silent after the members had been agreed on.
  const bool hopeless = std::any_of(sorted.begin(), sorted.end(), [&](int rank) { return silent_[std::size_t(rank)]; });
  if (fresh && hopeless)
    core_.loop.call_at(core_.loop.now() + latency(), arrival(Arrival::silence, -1, epoch),
                       [this, epoch] { revoke_for_all(epoch, -1); });
}

// A new incarnation: what was said of the one before is forgotten.
void ControlCenter::take_in(int rank, std::uint32_t epoch) {
  joiners_.erase(rank);
  silent_[std::size_t(rank)] = known_dead_[std::size_t(rank)] = false;
  fence(rank, false);
  ++lives_[std::size_t(rank)];
  core_.transport.forget_death_of(rank);
  core_.story(rank, fmt::format("is admitted in epoch {}", epoch));
  reply(rank, {Answer::Kind::taken_in, nullptr, std::make_shared<TakenIn>(TakenIn{epoch, members(epoch)})});
}

void ControlCenter::send_ballot(int rank, const Key& key, const Ballot& ballot, TimeNs deadline) {
  to_center(rank, [this, rank, key, ballot, deadline] { ballot_arrives(rank, key, ballot, deadline); });
}

void ControlCenter::ballot_arrives(int rank, const Key& key, const Ballot& ballot, TimeNs deadline) {
  core_.loop.touch(kCenter, Access::add);
  if (fenced(rank)) return reply(rank, {Answer::Kind::fenced, nullptr});
  const bool vote = key.kind != OpKind::agree;
  if (polls_.size() > kRemembered && polls_.begin()->second.over() && polls_.begin()->first < key)
    polls_.erase(polls_.begin());
  Poll& poll = polls_[key];
  if (vote && revoked_ >= std::int64_t(key.epoch) && !poll.decided) poll.cut_short = true;
  if (poll.cut_short) return reply(rank, {Answer::Kind::cut_short, nullptr});
  if (poll.decided) {  // without it: it was no member, or came too late
    fence(rank, true);
    return reply(rank, {Answer::Kind::fenced, nullptr});
  }
  poll.ballots[rank] = ballot;
  if (!poll.timed) {
    poll.timed = true;
    if (deadline != runtime::kForever) core_.loop.watchdog_at(deadline, deadlines_, deadlines_.add(key));
  }
  decide_if_complete(key, poll);
}

void ControlCenter::decide_if_complete(const Key& key, Poll& poll) {
  const std::vector<int>& all = members(key.epoch);
  if (core_.plan.classes != nullptr) {
    if (poll.ballots.size() == core_.plan.classes->simulated.size()) decide(key, poll);
    return;
  }
  const bool complete = std::all_of(all.begin(), all.end(), [&](int member) {
    return known_dead_[std::size_t(member)] || poll.ballots.contains(member);
  });
  if (complete && !poll.ballots.empty()) decide(key, poll);
}

// A vote of a later step than the one before is a step; everything else may go round in circles.
void ControlCenter::count(const Key& key) {
  const bool vote = key.kind != OpKind::agree;
  if (vote && key.step > voted_step_) without_step_ = 0;
  if (vote) voted_step_ = key.step;
  // Far beyond what recoveries need, or a checkpoint whose files are voted on one by one.
  constexpr std::uint64_t kMost = 100'000, kMostOfARank = 100;
  if (++without_step_ == kMost + kMostOfARank * std::uint64_t(core_.plan.ranks())) core_.loop.found_livelock();
}

void ControlCenter::decide(const Key& key, Poll& poll) {
  count(key);
  poll.decided = true;
  auto agreement = std::make_shared<Agreement>();
  agreement->epoch = key.epoch;
  if (core_.plan.classes != nullptr) {  // a rank that stands for others votes for them
    agreement->members = members(key.epoch);
    for (const int member : agreement->members) agreement->ballots.push_back(poll.ballots.at(core_.stand_in(member)));
    for (const auto& [rank, ballot] : poll.ballots) reply(rank, {Answer::Kind::decided, agreement});
    return poll.ballots.clear();
  }
  for (const auto& [rank, ballot] : poll.ballots) {
    agreement->members.push_back(rank);
    agreement->ballots.push_back(ballot);
  }
  announced_ = joiners_;
  agreement->joiners.assign(joiners_.begin(), joiners_.end());
  for (const int member : members(key.epoch)) {
    if (poll.ballots.contains(member)) continue;
    agreement->dead.push_back(member);
    if (silent_[std::size_t(member)]) agreement->silent.push_back(member);
    fence(member, true);
    core_.story(member,
                fmt::format("did not answer the {} of epoch {}: declared dead and fenced", name(key.kind), key.epoch));
  }
  for (const int member : agreement->members) reply(member, {Answer::Kind::decided, agreement});
  poll.ballots.clear();
}

void ControlCenter::reply(int rank, const Answer& answer) {
  const TimeNs when = runtime::later(gets_through(rank), latency());
  if (when == runtime::kForever) return;
  const std::uint64_t number = replies_[std::size_t(rank)]++;
  core_.loop.call_at(when, arrival(Arrival::reply, rank, number),
                     [this, rank, answer, to_life = core_.rank(rank).incarnation] {
                       core_.loop.touch(kCenter, Access::after);
                       core_.loop.touch(object(ObjectKind::answer, std::uint64_t(rank)), Access::write);
                       SimRank& to = core_.rank(rank);
                       if (to.incarnation == to_life && !to.host.dying() && !to.host.ended())
                         to.control.hear_answer(answer);
                     });
}

// A revoke that reaches the centre before a vote is decided cuts it short for all; after that it comes too late, for
// all.
void ControlCenter::send_revoke(int rank, std::uint32_t epoch) {
  to_center(rank, [this, rank, epoch] { revoke_arrives(rank, epoch); });
}

void ControlCenter::revoke_arrives(int from, std::uint32_t epoch) {
  if (!fenced(from)) revoke_for_all(epoch, from);
}

void ControlCenter::revoke_for_all(std::uint32_t epoch, int but) {
  core_.loop.touch(kCenter, Access::write);
  if (revoked_ >= std::int64_t(epoch)) return;
  revoked_ = std::int64_t(epoch);
  for (auto& [key, poll] : polls_) {
    if (key.kind == OpKind::agree || key.epoch > epoch || poll.over()) continue;
    poll.cut_short = true;
    for (const auto& [rank, ballot] : poll.ballots) reply(rank, {Answer::Kind::cut_short, nullptr});
    poll.ballots.clear();
  }
  for (const int member : members(epoch)) {
    if (member == but) continue;
    const TimeNs when = runtime::later(gets_through(member), latency());
    if (when == runtime::kForever) continue;
    core_.loop.call_at(when, arrival(Arrival::revoke, member, epoch),
                       [this, member, epoch, to_life = core_.rank(member).incarnation] {
                         core_.loop.touch(object(ObjectKind::signals, std::uint64_t(member)), Access::write);
                         SimRank& to = core_.rank(member);
                         if (to.incarnation == to_life && !to.host.dying() && !to.host.ended())
                           to.control.hear_of_revoke(epoch);
                       });
  }
}

std::string ControlCenter::undecided() const {
  std::string text;
  for (const auto& [key, poll] : polls_) {
    if (poll.over()) continue;
    text += fmt::format("{} of epoch {} waits for", name(key.kind), key.epoch);
    int named = 0;
    for (const int member : members(key.epoch))
      if (!poll.ballots.contains(member) && named++ < 8)
        text += fmt::format("{} rank {}", named == 1 ? "" : ",", member);
    text += named > 8 ? ", ...\n" : "\n";
  }
  return text;
}

void ControlCenter::died(int rank, TimeNs noticed_after) {
  if (noticed_after < 0) return;
  const auto notice = [this, rank, life = lives(rank), incarnation = core_.rank(rank).incarnation] {
    if (lives(rank) != life) return;
    if (core_.rank(rank).incarnation == incarnation) joiners_.erase(rank);
    is_dead(rank);
  };
  core_.loop.call_at(runtime::later(core_.loop.now(), noticed_after), arrival(Arrival::death, rank, lives(rank)),
                     notice);
}

void ControlCenter::is_dead(int rank) {
  core_.loop.touch(kCenter, Access::write);
  known_dead_[std::size_t(rank)] = true;
  decide_where_complete();
}

void ControlCenter::decide_where_complete() {
  for (auto& [key, poll] : polls_)
    if (!poll.over()) decide_if_complete(key, poll);
}

// ---- heartbeats --------------------------------------------------------------------------------------------------

// Heartbeats that come are no events: nothing follows from them. Only a silence is, so all that is computed is when
// the last one was sent and when its successor will have been missed for too long. Ranks beat at different moments.
void ControlCenter::falls_silent(int rank, TimeNs until) {
  const TimeNs every = core_.plan.heartbeats.every_ns;
  if (every <= 0 || fenced(rank)) return;
  const TimeNs now = core_.loop.now(), first = every * (rank % 16) / 16;
  const TimeNs last = now < first ? 0 : first + (now - first) / every * every;
  const TimeNs missed = runtime::later(last, core_.plan.heartbeats.timeout_ns) + latency();
  if (until <= missed) return;  // its next heartbeat comes in time
  core_.loop.call_at(missed, arrival(Arrival::silence, rank, lives(rank)), [this, rank, life = lives(rank)] {
    if (lives(rank) == life) declare_silent(rank);
  });
}

void ControlCenter::declare_silent(int rank) {
  const std::uint32_t epoch = core_.transport.newest_epoch;
  const std::vector<int>& all = members(epoch);
  if (core_.plan.classes != nullptr) return core_.tell_apart(fmt::format("rank {} sends no heartbeats", rank));
  if (fenced(rank) || !std::binary_search(all.begin(), all.end(), rank)) return;
  silent_[std::size_t(rank)] = true;
  core_.loop.touch(kCenter, Access::write);
  fence(rank, true);
  core_.story(rank, fmt::format("sends no heartbeats: declared dead and fenced, epoch {} is revoked", epoch));
  for (auto& [key, poll] : polls_)
    if (!poll.over()) poll.ballots.erase(rank);  // its earlier ballot does not count: no rank can go on with it
  revoke_for_all(epoch, -1);  // itself too: a process that was only stopped hears of it when it runs again
  is_dead(rank);
}

// ---- who comes in ------------------------------------------------------------------------------------------------

void ControlCenter::send_join(int rank, bool waits) {
  to_center(rank, [this, rank, waits] {
    if (waits)
      join_arrives(rank);
    else
      joiners_.erase(rank);
  });
}

void ControlCenter::join_arrives(int rank) {
  core_.loop.touch(kCenter, Access::write);
  core_.loop.touch(kJoiners, Access::write);
  if (over_ || members_ended()) {
    over_ = true;
    return reply(rank, {Answer::Kind::run_is_over});
  }
  joiners_.insert(rank);
  core_.story(rank, "waits to be admitted");
  // If it was a member, it has given that up, and what an earlier incarnation of it said counts no more.
  known_dead_[std::size_t(rank)] = true;
  for (auto& [key, poll] : polls_) poll.ballots.erase(rank);
  decide_where_complete();
}

bool ControlCenter::members_ended() const {
  const std::vector<int>& newest = members_.rbegin()->second;
  return std::all_of(newest.begin(), newest.end(), [this](int member) { return ended_[std::size_t(member)]; });
}

void ControlCenter::ended(int rank) {
  ended_[std::size_t(rank)] = true;
  core_.loop.touch(kJoiners, Access::read);
  if (!joiners_.empty() && members_ended()) end_run();
}

void ControlCenter::end_run() {
  over_ = true;
  for (const int rank : joiners_) reply(rank, {Answer::Kind::run_is_over});
  joiners_.clear();
}

bool ControlCenter::send_home(std::size_t living, std::size_t hanging) {
  if (joiners_.empty() || living != hanging + joiners_.size()) return false;
  end_run();
  return true;
}

std::uint64_t ControlCenter::Deadlines::add(const Key& key) {
  if (free_.empty()) {
    keys_.push_back(key);
    return keys_.size() - 1;
  }
  const std::uint64_t place = free_.back();
  free_.pop_back();
  keys_[place] = key;
  return place;
}

bool ControlCenter::Deadlines::live(const Timer& timer) {
  const auto poll = center_.polls_.find(keys_[timer.arg]);
  if (poll != center_.polls_.end() && !poll->second.over()) return true;
  free_.push_back(timer.arg);  // the loop drops the entry now
  return false;
}

DueTimer ControlCenter::Deadlines::due(const Timer& timer) {
  return {timer, arrival(Arrival::poll_deadline, -1, keys_[timer.arg].digest()), kCenter};
}

void ControlCenter::Deadlines::fire(const Timer& timer) {
  const Key key = keys_[timer.arg];
  // A centre that stood still gives everybody who waits for it the time to be heard.
  const TimeNs stands = center_.stands_until();
  if (stands > center_.core_.loop.now()) {
    if (stands < runtime::kForever) center_.core_.loop.watchdog_at(runtime::later(stands, kCutOff), *this, timer.arg);
    return;
  }
  free_.push_back(timer.arg);
  if (center_.core_.plan.classes != nullptr) return center_.core_.tell_apart("a vote's deadline passed");
  center_.decide(key, center_.polls_.at(key));
}

}  // namespace seeksim::sim
