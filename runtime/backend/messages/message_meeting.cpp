// Building communicators: create, split and shrink are meetings at the first member. All members report to it; when it
// has heard from all, it sends them the list of members.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "kernels/check.h"
#include "runtime/backend/messages/message_head.h"
#include "runtime/backend/wire/bytes.h"

namespace seeksim::runtime {
namespace {

std::uint64_t combine(std::uint64_t a, std::uint64_t b) {
  const std::uint64_t h = (a ^ b * 0x9e3779b97f4a7c15ull) * 0xff51afd7ed558ccdull;
  return h ^ h >> 33;
}

std::uint64_t hash_of(std::span<const int> members) {
  std::uint64_t h = members.size();
  for (const int member : members) h = combine(h, std::uint64_t(member));
  return h;
}

}  // namespace

Comm MessageTransport::create(const Op& op, const CommSpec& spec, TimeNs deadline) {
  return meet(op, spec, 0, 0, deadline);
}

Comm MessageTransport::meet(const Op& op, const CommSpec& spec, int color, int key, TimeNs deadline) {
  if (signals_.fenced) throw SeamError(ErrorKind::fenced, op, "the others have declared this rank dead");
  if (std::find(spec.members.begin(), spec.members.end(), rank_) == spec.members.end())
    throw SeamError(ErrorKind::mismatch, op, fmt::format("invalid argument: rank {} is no member", rank_));
  const Key id{spec.id, spec.epoch};
  if (handles_.contains(id) || gone_.contains(id))
    throw SeamError(ErrorKind::mismatch, op, "this communicator has been built already: ids are used once");
  Meeting& meeting = meetings_[id];
  const int first = spec.members.front();
  Head head = head_of(Head::kJoin, id);
  head.tensor = hash_of(spec.members);
  head.step = color;
  head.micro_batch = key;
  if (first == rank_)
    meeting.arrivals[rank_] = {color, key, head.tensor};
  else
    send_small(first, head, {});
  const auto is_over = [&] {
    if (first == rank_ && !meeting.answers.contains(first)) begin_if_all_came(meeting, id, spec.members);
    return meeting.answers.contains(first);
  };
  const bool in_time = loop_.until(deadline, [&] { return is_over() || signals_.revoked >= std::int64_t(spec.epoch); });
  if (!in_time) {
    std::vector<int> missing;
    for (const int member : spec.members) {
      if (!meeting.arrivals.contains(member)) missing.push_back(member);
    }
    throw SeamError(ErrorKind::timeout, op,
                    first == rank_ ? fmt::format("still missing: rank {}", fmt::join(missing, ", "))
                                   : fmt::format("rank {}, where all meet, has not said that all have come", first));
  }
  if (!meeting.answers.contains(first))
    throw SeamError(ErrorKind::revoked, op, "the epoch was revoked while the communicator was being built");
  const Meeting::Answer answer = std::move(meeting.answers.at(first));
  meetings_.erase(id);
  if (answer.refused) throw SeamError(ErrorKind::mismatch, op, "the members differ from those that another rank gave");
  if (!keeps_to(answer, spec.members, color)) {
    throw SeamError(ErrorKind::mismatch, op,
                    fmt::format("rank {}, where all meet, names members that did not meet", first));
  }
  if (answer.members.empty()) return Comm{};  // of no colour
  comms_.push_back({});
  comms_.back().key = {color == 0 ? spec.id : combine(spec.id, std::uint64_t(color)), spec.epoch};
  comms_.back().members = answer.members;
  const Comm made{std::uint32_t(comms_.size())};
  handles_[comms_.back().key] = made.handle;
  return made;
}

// Whether an answer names, each once, ranks that were asked to come, this one among them.
bool MessageTransport::keeps_to(const Meeting::Answer& answer, std::span<const int> members, int color) const {
  std::vector<int> named = answer.members;
  if (color < 0) return named.empty();
  std::sort(named.begin(), named.end());
  return std::adjacent_find(named.begin(), named.end()) == named.end() &&
         std::binary_search(named.begin(), named.end(), rank_) &&
         std::all_of(named.begin(), named.end(),
                     [&](int rank) { return std::find(members.begin(), members.end(), rank) != members.end(); });
}

// At the first member, when the last one has come. Arrivals of ranks that are no members count for nothing.
void MessageTransport::begin_if_all_came(Meeting& meeting, const Key& key, std::span<const int> members) {
  const auto came = [&](int member) { return meeting.arrivals.contains(member); };
  if (!std::all_of(members.begin(), members.end(), came)) return;
  bool refused = false;
  const std::uint64_t own = meeting.arrivals.at(rank_).members_hash;
  std::map<int, std::vector<int>> by_color;
  for (const int rank : members) {
    const Meeting::Arrival& arrival = meeting.arrivals.at(rank);
    refused |= arrival.members_hash != own;
    if (arrival.color >= 0) by_color[arrival.color].push_back(rank);
  }
  for (auto& [color, ranks] : by_color) {
    const auto place = [&](int rank) { return std::find(members.begin(), members.end(), rank) - members.begin(); };
    std::sort(ranks.begin(), ranks.end(), [&](int a, int b) {
      const int key_a = meeting.arrivals.at(a).key, key_b = meeting.arrivals.at(b).key;
      return key_a != key_b ? key_a < key_b : place(a) < place(b);
    });
  }
  Head head = head_of(Head::kJoined, key);
  head.refused = refused;
  for (const int rank : members) {
    const Meeting::Arrival& arrival = meeting.arrivals.at(rank);
    const std::vector<int> ranks = arrival.color < 0 ? std::vector<int>{} : by_color.at(arrival.color);
    if (rank == rank_)
      meeting.answers[rank] = {refused, ranks};
    else
      send_small(rank, head, to_bytes(ranks));
  }
}

void MessageTransport::arrive(const Head& head, int from, std::span<const std::byte> more) {
  constexpr std::size_t kMeetingsMax = 4096;
  const Key key{head.comm, head.epoch};
  Early message;
  message.from = from;
  if (gone_.contains(key)) return throw_away(message);
  if (!meetings_.contains(key) && meetings_.size() >= kMeetingsMax)
    return refuse(message, "its arrival at a meeting that no other rank comes to, once too often");
  Meeting& meeting = meetings_[key];
  if (head.kind == Head::kJoin) {
    meeting.arrivals[from] = {int(head.step), head.micro_batch, head.tensor};
    return;
  }
  Meeting::Answer answer;
  answer.refused = head.refused != 0;
  try {
    from_bytes(more, answer.members);
  } catch (const Malformed& bad) {
    return refuse(message, fmt::format("a list of members that {}", bad.what()));
  }
  meeting.answers[from] = std::move(answer);
}

Comm MessageTransport::split(const Op& op, Comm parent, int color, int key, TimeNs deadline) {
  Held* held = find(parent);
  if (held == nullptr) throw SeamError(ErrorKind::mismatch, op, "invalid argument: no communicator to split");
  if (held->error != CommResult::success)
    throw SeamError(error_kind(held->error), op, "the parent communicator failed");
  if (held->state == Held::State::finalized) throw SeamError(ErrorKind::mismatch, op, "the parent is finalized");
  CommSpec spec;
  spec.epoch = op.epoch;
  spec.id = combine(combine(held->key.first, 0x5b117), held->splits++);
  spec.members = held->members;
  return meet(op, spec, color, key, deadline);
}

// Survivors alone call it, each with the same list: nothing is agreed on here, as with NCCL.
Comm MessageTransport::shrink(const Op& op, Comm parent, std::span<const int> exclude, TimeNs deadline) {
  Held* held = find(parent);
  if (held == nullptr || exclude.empty())
    throw SeamError(ErrorKind::mismatch, op, "invalid argument: shrink needs a communicator and ranks to exclude");
  if (held->state == Held::State::finalized) throw SeamError(ErrorKind::mismatch, op, "the parent is finalized");
  if (held->error != CommResult::success)
    throw SeamError(error_kind(held->error), op, "the parent communicator failed");
  CommSpec spec;
  spec.epoch = op.epoch;
  spec.id = combine(combine(held->key.first, 0x5412), held->shrinks++);
  for (const int member : held->members) {
    const bool excluded = std::find(exclude.begin(), exclude.end(), member) != exclude.end();
    if (excluded && member == rank_)
      throw SeamError(ErrorKind::mismatch, op, fmt::format("invalid argument: rank {} excludes itself", rank_));
    if (!excluded) spec.members.push_back(member);
    spec.id = combine(spec.id, std::uint64_t(member) * 2 + (excluded ? 1 : 0));
  }
  return meet(op, spec, 0, 0, deadline);
}

}  // namespace seeksim::runtime
