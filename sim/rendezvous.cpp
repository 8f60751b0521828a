// Building communicators: create, split and shrink are meetings of hosts that end when all have come, at a deadline, or
// when the epoch is revoked.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <map>

#include "sim/core.h"
#include "sim/transport.h"

namespace seeksim::sim {

using runtime::Comm;
using runtime::CommResult;
using runtime::CommSpec;
using runtime::ErrorKind;
using runtime::Op;
using runtime::SeamError;

namespace {

// What bootstrapping costs on top of its messages.
constexpr TimeNs kBootstrap = 200 * runtime::kMicrosecond;

std::uint64_t combined_id(std::uint64_t a, std::uint64_t b) {
  std::uint64_t h = (a ^ b * 0x9e3779b97f4a7c15ull) * 0xff51afd7ed558ccdull;
  return h ^ h >> 33;
}

// The members that never came; a member that came and left again is no cause.
std::string absent(const Rendezvous& meeting) {
  std::string text;
  int named = 0;
  for (std::size_t i = 0; i < meeting.members.size(); ++i) {
    if (meeting.arrivals[i].came) continue;
    if (named++ == 8) return text + ", ...";
    text += fmt::format("{}{}", named == 1 ? "" : ", ", meeting.members[i]);
  }
  return text.empty() ? "(all came, some left again)" : text;
}

// A member's place; -1: no member. Most often launch ranks are their own places.
int place_of(int rank, const std::vector<int>& members) {
  if (std::size_t(rank) < members.size() && members[std::size_t(rank)] == rank) return rank;
  const auto it = std::find(members.begin(), members.end(), rank);
  return it == members.end() ? -1 : int(it - members.begin());
}

// Takes an arrival back when its host leaves before the meeting is complete: by a deadline, a revoke or its death.
class Presence {
 public:
  Presence(Rendezvous& meeting, int place, Loop& loop, Object object)
      : meeting_(meeting), place_(std::size_t(place)), loop_(loop), object_(object) {
    loop_.touch(object_, Access::add);
    meeting_.arrivals[place_].here = meeting_.arrivals[place_].came = true;
    ++meeting_.count;
  }
  Presence(const Presence&) = delete;
  Presence& operator=(const Presence&) = delete;
  ~Presence() {
    if (meeting_.complete) return;
    loop_.touch(object_, Access::write);
    meeting_.arrivals[place_].here = false;
    --meeting_.count;
  }

 private:
  Rendezvous& meeting_;
  std::size_t place_;
  Loop& loop_;
  Object object_;
};

}  // namespace

Comm SimTransport::create(const Op& op, const CommSpec& spec, TimeNs deadline) {
  return join(op, spec, 0, 0, deadline);
}

Comm SimTransport::join(const Op& op, const CommSpec& spec, int color, int key, TimeNs deadline) {
  check_not_fenced(op);
  const int me = rank_.host.rank();
  const int place = place_of(me, spec.members);
  if (place < 0) throw SeamError(ErrorKind::mismatch, op, fmt::format("invalid argument: rank {} is no member", me));
  Rendezvous& meeting = core_.transport.meeting(spec);
  if (meeting.members != spec.members)
    throw SeamError(ErrorKind::mismatch, op, "the members differ from those that another rank gave");
  Rendezvous::Arrival& mine = meeting.arrivals[std::size_t(place)];
  if (mine.here)
    throw SeamError(ErrorKind::mismatch, op, "this communicator has been built already: ids are used once");
  const Object met = object(ObjectKind::meeting, spec.id, spec.epoch);
  const Presence presence(meeting, place, core_.loop, met);
  mine.color = color;
  mine.key = key;
  if (meeting.count == core_.simulated_of(meeting.members)) core_.transport.begin(meeting);
  while (!meeting.complete) {
    if (rank_.control.revoked(spec.epoch))
      throw SeamError(ErrorKind::revoked, op, "the epoch was revoked while the communicator was being built");
    if (core_.loop.now() >= deadline) throw SeamError(ErrorKind::timeout, op, "still missing: rank " + absent(meeting));
    meets_in_ = &meeting;
    rank_.host.block(Blocked::rendezvous, deadline);
    if (rank_.host.dying()) throw runtime::RankDied{me};
  }
  core_.loop.touch(met, Access::read);
  core_.loop.touch(object(ObjectKind::signals, std::uint64_t(me)), Access::read);
  if (mine.made == nullptr) return Comm{};
  comms_.push_back({});
  comms_.back().shared = mine.made;
  comms_.back().position = mine.made->position(me);
  return Comm{std::uint32_t(comms_.size())};
}

std::string SimTransport::meeting_waits_for() const {
  return meets_in_ == nullptr ? "nobody" : "rank " + absent(*meets_in_) + " (to join)";
}

void SimTransport::check_not_fenced(const Op& op) const {
  if (core_.control.fenced(rank_.host.rank()))
    throw SeamError(ErrorKind::fenced, op, "the others have declared this rank dead");
}

Comm SimTransport::split(const Op& op, Comm parent, int color, int key, TimeNs deadline) {
  RankComm* held = find(parent);
  if (held == nullptr) throw SeamError(ErrorKind::mismatch, op, "invalid argument: no communicator to split");
  if (held->error != CommResult::success)
    throw SeamError(error_kind(held->error), op, "the parent communicator failed");
  if (held->state == RankComm::State::finalized) throw SeamError(ErrorKind::mismatch, op, "the parent is finalized");
  CommSpec spec;
  spec.axis = held->shared->axis;
  spec.epoch = op.epoch;
  spec.id = combined_id(combined_id(held->shared->id, 0x5b117), held->splits++);
  spec.members = held->shared->members;
  return join(op, spec, color, key, deadline);
}

// Survivors alone call it. Ranks with different lists never meet: NCCL agrees on nothing here, and neither do we.
Comm SimTransport::shrink(const Op& op, Comm parent, std::span<const int> exclude, TimeNs deadline) {
  RankComm* held = find(parent);
  const int me = rank_.host.rank();
  if (held == nullptr || exclude.empty())
    throw SeamError(ErrorKind::mismatch, op, "invalid argument: shrink needs a communicator and ranks to exclude");
  if (held->state == RankComm::State::finalized) throw SeamError(ErrorKind::mismatch, op, "the parent is finalized");
  if (held->error != CommResult::success)
    throw SeamError(error_kind(held->error), op, "the parent communicator failed");
  CommSpec spec;
  spec.axis = held->shared->axis;
  spec.epoch = op.epoch;
  spec.id = combined_id(combined_id(held->shared->id, 0x5412), held->shrinks);
  for (const int member : held->shared->members) {
    const bool excluded = std::find(exclude.begin(), exclude.end(), member) != exclude.end();
    if (excluded && member == me)
      throw SeamError(ErrorKind::mismatch, op, fmt::format("invalid argument: rank {} excludes itself", me));
    if (!excluded) spec.members.push_back(member);
    spec.id = combined_id(spec.id, std::uint64_t(member) * 2 + (excluded ? 1 : 0));
  }
  ++held->shrinks;
  return join(op, spec, 0, 0, deadline);
}

// ---- TransportHub ------------------------------------------------------------------------------------------------

Rendezvous& TransportHub::meeting(const CommSpec& spec) {
  auto [it, fresh] = meetings_.try_emplace({spec.id, spec.epoch});
  Rendezvous& meeting = it->second;
  if (fresh) {
    meeting.id = spec.id;
    meeting.epoch = spec.epoch;
    meeting.axis = spec.axis;
    meeting.members = spec.members;
    meeting.arrivals.resize(meeting.members.size());
  }
  return meeting;
}

void TransportHub::begin(Rendezvous& meeting) {
  const int rounds = 2 * std::bit_width(unsigned(meeting.members.size()));
  const TimeNs cost = core_.loop.untimed() ? 0 : kBootstrap + rounds * core_.network.between().latency_ns;
  core_.loop.call_at(core_.loop.now() + cost, arrival(Arrival::built, -1, combined_id(meeting.id, meeting.epoch)),
                     [this, &meeting] { finish(meeting); });
}

void TransportHub::finish(Rendezvous& meeting) {
  core_.loop.touch(object(ObjectKind::meeting, meeting.id, meeting.epoch), Access::write);
  if (meeting.complete || meeting.count != core_.simulated_of(meeting.members)) return;  // a member left meanwhile
  std::map<int, std::vector<std::size_t>> by_color;                                      // places
  for (std::size_t i = 0; i < meeting.arrivals.size(); ++i)
    if (meeting.arrivals[i].color >= 0) by_color[meeting.arrivals[i].color].push_back(i);
  for (auto& [color, places] : by_color) {
    std::stable_sort(places.begin(), places.end(),
                     [&](std::size_t a, std::size_t b) { return meeting.arrivals[a].key < meeting.arrivals[b].key; });
    std::vector<int> members;
    for (const std::size_t place : places) members.push_back(meeting.members[place]);
    const std::uint64_t id = combined_id(meeting.id, std::uint64_t(color));
    comms_.push_back(
        std::make_unique<SharedComm>(id, meeting.epoch, meeting.axis, std::move(members), core_.plan.ranks_per_node));
    SharedComm& made = *comms_.back();
    made.simulated = core_.simulated_of(made.members);
    // All are there: the ranks of one replica of the model, which then stands for others whole.
    if (made.simulated == made.members.size()) made.stands_for = core_.weight(made.members.front());
    for (const std::size_t place : places) meeting.arrivals[place].made = comms_.back().get();
  }
  meeting.complete = true;
  for (const int member : meeting.members)
    if (core_.simulated(member)) core_.loop.wake(core_.rank(member).host);
}

}  // namespace seeksim::sim
