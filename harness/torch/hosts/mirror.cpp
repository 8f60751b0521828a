#include "harness/torch/hosts/mirror.h"

#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <cstring>
#include <set>

#include "runtime/backend/wire/bytes.h"

namespace seeksim::harness::torch {

using pytorch::Box;
using pytorch::Expectation;
using pytorch::Far;
using pytorch::Note;
using pytorch::NoteKind;
using pytorch::Part;
using pytorch::Poison;
using pytorch::RankState;

namespace {

constexpr std::size_t kPoisonTold = 2048;  // characters: what a head has room for

std::span<const std::byte> bytes_at(const char* from, std::size_t n) {
  return {reinterpret_cast<const std::byte*>(from), n};
}
std::span<std::byte> room_at(char* from, std::size_t n) { return {reinterpret_cast<std::byte*>(from), n}; }

void need(bool fine, const char* what) {
  if (!fine) throw std::runtime_error(fmt::format("a rank of this host said what makes no sense: {}", what));
}

CameFrame frame_of(const RankState& rank, const Note& note, int n) {
  const Expectation& told = rank.expected[note.bank];
  CameFrame frame;
  frame.meeting = note.count;
  frame.bank = note.bank;
  frame.joined = rank.joined;
  frame.finished = rank.finished;
  frame.op = told.op;
  frame.reduce = told.reduce;
  frame.dtype = told.dtype;
  frame.root = told.root;
  frame.numel = told.numel;
  frame.tensors = told.tensors;
  frame.sizes = told.sizes;
  frame.gives.assign(told.gives.begin(), told.gives.begin() + n);
  frame.takes.assign(told.takes.begin(), told.takes.begin() + n);
  return frame;
}

void write_expectation(Expectation& to, const CameFrame& frame) {
  to.op = frame.op;
  to.reduce = frame.reduce;
  to.dtype = frame.dtype;
  to.root = frame.root;
  to.numel = frame.numel;
  to.tensors = frame.tensors;
  to.sizes = frame.sizes;
  std::copy(frame.gives.begin(), frame.gives.end(), to.gives.begin());
  std::copy(frame.takes.begin(), frame.takes.end(), to.takes.begin());
}

}  // namespace

Mirror::Mirror(const pytorch::Entrance& entrance, int host, pytorch::Segment segment, Send send)
    : key_(entrance.key), host_(host), segment_(std::move(segment)), send_(std::move(send)) {
  need(entrance.size >= 2 && entrance.size <= kFarRanksMax, "a group of so many ranks");
  hosts_.assign(entrance.hosts.begin(), entrance.hosts.begin() + entrance.size);
  std::set<int> others(hosts_.begin(), hosts_.end());
  need(*others.begin() >= 0 && *others.rbegin() < pytorch::kMaxHosts, "a rank on such a host");
  others.erase(host);
  others_.assign(others.begin(), others.end());
  pids_.resize(hosts_.size());
  meetings_.resize(hosts_.size());
  told_.resize(hosts_.size());
}

template <class Frame>
void Mirror::tell(int host, FrameKind kind, const Frame& frame, std::span<const std::byte> payload) {
  send_(host, runtime::to_bytes(kind, frame), payload);
}

template <class Frame>
void Mirror::tell_others(FrameKind kind, const Frame& frame) {
  for (const int host : others_) tell(host, kind, frame);
}

// ---- of ranks here

void Mirror::entered(const pytorch::Entrance& entrance, int pid) {
  need(entrance.size == size() && std::equal(hosts_.begin(), hosts_.end(), entrance.hosts.begin()), "other hosts");
  need(is_here(entrance.place) && pids_[std::size_t(entrance.place)] == 0, "its place");
  pids_[std::size_t(entrance.place)] = pid;
}

void Mirror::noted(int place, const Note& note, std::span<const Part> parts) {
  need(is_here(place), "its place");
  switch (note.kind) {
    case NoteKind::came:
      need(note.bank < std::uint32_t(pytorch::kBanks), "a bank");
      need(note.count == meetings_[std::size_t(place)] + 1, "a meeting");
      meetings_[std::size_t(place)] = note.count;
      return tell_came(place, note, parts);
    case NoteKind::wrote:
      return tell_chunk(place, note);
    case NoteKind::took: {
      need(note.place >= 0 && note.place < size() && !is_here(note.place), "from whom it took something");
      return tell(hosts_[std::size_t(note.place)], FrameKind::took, TookFrame{key_, note.place, place, note.count});
    }
    case NoteKind::failed:
      return tell_poison();
    case NoteKind::stacks:
      need(note.place >= 0 && note.place < size() && !is_here(note.place), "whose stacks it asks for");
      return tell(hosts_[std::size_t(note.place)], FrameKind::stacks, PlaceFrame{key_, note.place});
    default:
      need(false, "a note");
  }
}

void Mirror::tell_came(int place, const Note& note, std::span<const Part> parts) {
  const char* slot = segment_.slot(int(note.bank), place);
  for (const Part& part : parts) {
    need(part.bytes <= pytorch::kSlotBytes && part.offset <= pytorch::kSlotBytes - part.bytes, "a part of a slot");
    need(part.to >= -1 && part.to < size(), "who reads a part of a slot");
    const PartFrame frame{key_, place, note.bank, part.offset};
    for (const int host : others_) {
      if (part.to < 0 || hosts_[std::size_t(part.to)] == host)
        tell(host, FrameKind::part, frame, bytes_at(slot + part.offset, part.bytes));
    }
  }
  CameFrame frame = frame_of(segment_.rank(place), note, size());
  frame.key = key_;
  frame.place = place;
  told_[std::size_t(place)] = {frame.joined, frame.finished};
  tell_others(FrameKind::came, frame);
}

void Mirror::tell_chunk(int place, const Note& note) {
  need(note.place >= 0 && note.place < size() && !is_here(note.place), "to whom it wrote");
  need(note.count > 0 && note.bytes <= pytorch::kChunkBytes, "a part of a message");
  const Box& box = segment_.box(place, note.place);
  const std::size_t at = (note.count - 1) % pytorch::kChunks;
  const pytorch::ChunkHead head = box.head[at];
  const ChunkFrame frame{key_, place, note.place, note.count, head.message, head.bytes, head.dtype, head.tag};
  tell(hosts_[std::size_t(note.place)], FrameKind::chunk, frame, bytes_at(box.data[at], note.bytes));
}

void Mirror::tell_poison() {
  const Poison& poison = segment_.poison();
  if (poison.state.load() != 2) return;
  PoisonFrame frame;
  frame.key = key_;
  for (std::uint32_t i = 0; i < std::min<std::uint32_t>(poison.culprits, kFarRanksMax); ++i)
    frame.culprits.emplace_back(poison.culprit[i], poison.blame[i]);
  frame.text.assign(poison.text, strnlen(poison.text, kPoisonTold));
  tell_others(FrameKind::poison, frame);
}

void Mirror::tick(std::span<const std::int64_t> heard_ns) {
  for (int place = 0; place < size(); ++place) {
    RankState& rank = segment_.rank(place);
    if (!is_here(place)) {
      const auto host = std::size_t(hosts_[std::size_t(place)]);
      if (rank.far.load() == Far::there && host < heard_ns.size()) rank.heard_ns = heard_ns[host];
      continue;
    }
    const std::pair<std::uint64_t, std::uint64_t> now = {rank.joined, rank.finished};
    if (now == told_[std::size_t(place)]) continue;
    told_[std::size_t(place)] = now;
    tell_others(FrameKind::state, StateFrame{key_, place, now.first, now.second});
  }
}

void Mirror::ended(int place) { tell_others(FrameKind::ended, PlaceFrame{key_, place}); }

// ---- of other hosts

void Mirror::need_there(int from, int place) const {
  if (place < 0 || place >= size() || hosts_[std::size_t(place)] != from || from == host_)
    throw Distrust(fmt::format("speaks for rank {} of a group, which is not on it", place));
}

void Mirror::need_here(int place) const {
  if (!is_here(place)) throw Distrust(fmt::format("means rank {} of a group, which is not here", place));
}

std::span<std::byte> Mirror::room_for(int from, const PartFrame& frame, std::uint64_t bytes) {
  need_there(from, frame.place);
  if (frame.bank >= std::uint32_t(pytorch::kBanks) || bytes > pytorch::kSlotBytes ||
      frame.offset > pytorch::kSlotBytes - bytes)
    throw Distrust(fmt::format("fills {} bytes of a slot from {} on", bytes, frame.offset));
  return room_at(segment_.slot(int(frame.bank), frame.place) + frame.offset, bytes);
}

std::span<std::byte> Mirror::room_for(int from, const ChunkFrame& frame, std::uint64_t bytes) {
  need_there(from, frame.from);
  need_here(frame.to);
  std::uint32_t& announced = announced_[{frame.from, frame.to}];
  Box& box = segment_.box(frame.from, frame.to);
  if (frame.number != announced + 1 || frame.number - box.taken.count.load() > pytorch::kChunks ||
      bytes > pytorch::kChunkBytes)
    throw Distrust(fmt::format("sends {} bytes as part {} of messages after part {}", bytes, frame.number, announced));
  announced = frame.number;
  return room_at(box.data[(frame.number - 1) % pytorch::kChunks], bytes);
}

void Mirror::take(int from, const CameFrame& frame) {
  need_there(from, frame.place);
  std::uint32_t& meetings = meetings_[std::size_t(frame.place)];
  if (frame.meeting != meetings + 1 || frame.bank >= std::uint32_t(pytorch::kBanks) ||
      frame.gives.size() != hosts_.size() || frame.takes.size() != hosts_.size())
    throw Distrust(
        fmt::format("says rank {} of a group came to meeting {} after {}", frame.place, frame.meeting, meetings));
  meetings = frame.meeting;
  RankState& rank = segment_.rank(frame.place);
  rank.joined = frame.joined;
  rank.finished = frame.finished;
  write_expectation(rank.expected[frame.bank], frame);
  rank.meetings.ring(frame.meeting);
}

void Mirror::take(int from, const StateFrame& frame) {
  need_there(from, frame.place);
  segment_.rank(frame.place).joined = frame.joined;
  segment_.rank(frame.place).finished = frame.finished;
}

void Mirror::take(int from, const ChunkFrame& frame) {
  need_there(from, frame.from);
  need_here(frame.to);
  Box& box = segment_.box(frame.from, frame.to);
  box.head[(frame.number - 1) % pytorch::kChunks] = {frame.message, frame.bytes, frame.dtype, frame.tag};
  box.written.ring(frame.number);
}

void Mirror::take(int from, const TookFrame& frame) {
  need_here(frame.from);
  need_there(from, frame.to);
  Box& box = segment_.box(frame.from, frame.to);
  const std::uint32_t taken = box.taken.count.load();
  if (frame.number != taken + 1 || std::int32_t(box.written.count.load() - frame.number) < 0)
    throw Distrust(fmt::format("took part {} of messages after part {}", frame.number, taken));
  box.taken.ring(frame.number);
}

void Mirror::take(int from, const PoisonFrame& frame) {
  if (std::find(others_.begin(), others_.end(), from) == others_.end() || frame.culprits.size() > kFarRanksMax)
    throw Distrust("speaks of a group that it is not in");
  Poison& poison = segment_.poison();
  std::uint32_t none = 0;
  if (!poison.state.compare_exchange_strong(none, 1)) return;
  poison.culprits = std::uint32_t(frame.culprits.size());
  for (std::size_t i = 0; i < frame.culprits.size(); ++i) {
    poison.culprit[i] = frame.culprits[i].first;
    poison.blame[i] = frame.culprits[i].second;
  }
  std::memcpy(poison.text, frame.text.data(), std::min(frame.text.size(), pytorch::kPoisonText - 1));
  poison.state.store(2);
  for (int place = 0; place < size(); ++place) segment_.rank(place).meetings.wake();
}

void Mirror::take_ended(int from, const PlaceFrame& frame) {
  need_there(from, frame.place);
  segment_.rank(frame.place).far.store(Far::ended);
  segment_.rank(frame.place).meetings.wake();
}

void Mirror::take_stacks(const PlaceFrame& frame) {
  need_here(frame.place);
  const int pid = pids_[std::size_t(frame.place)];
  if (pid > 1 && segment_.rank(frame.place).shows_stacks == 1) pytorch::ProcessHandle(pid).signal(SIGUSR2);
}

void Mirror::lost(int host, Far why, std::int64_t heard_ns) {
  for (int place = 0; place < size(); ++place) {
    if (hosts_[std::size_t(place)] != host) continue;
    RankState& rank = segment_.rank(place);
    rank.heard_ns = heard_ns;
    Far there = Far::there;
    rank.far.compare_exchange_strong(there, why);
    rank.meetings.wake();
  }
}

}  // namespace seeksim::harness::torch
