// What the relay makes of frames that come from other hosts, and of payloads that have come or gone.
#include <fmt/format.h>

#include <algorithm>

#include "harness/torch/hosts/relay_loop.h"

namespace seeksim::harness::torch {

using pytorch::monotonic_ns;
using runtime::Malformed;
using runtime::to_bytes;

namespace {

constexpr std::size_t kDeedsMax = 1 << 14;  // frames that wait for a payload

}  // namespace

void RelayLoop::arrived(int from, std::span<const std::byte> head, Ticket payload) {
  if (peers_[std::size_t(from)].lost) {
    if (payload != 0) wire_->discard(payload);
    return;
  }
  std::string why;
  try {
    return dispatch(from, head, payload);
  } catch (const Distrust& wrong) {
    why = wrong.what();
  } catch (const Malformed& wrong) {
    why = fmt::format("sent a message that {}", wrong.what());
  }
  if (payload != 0) wire_->discard(payload);
  wire_->cut_off(from, fmt::format("host {} {}", from, why));
}

template <class Frame>
Frame RelayLoop::frame_in(runtime::ByteReader& reader) const {
  Frame frame;
  reader(frame);
  if (!reader.at_end()) throw Malformed("goes on behind its end");
  return frame;
}

void RelayLoop::dispatch(int from, std::span<const std::byte> head, Ticket payload) {
  runtime::ByteReader reader(head);
  FrameKind kind = FrameKind::count_;
  reader(kind);
  Peer& peer = peers_[std::size_t(from)];
  const bool carries = kind == FrameKind::part || kind == FrameKind::chunk || kind == FrameKind::file;
  if (payload != 0 && !carries) throw Distrust("sends bytes with what has none");
  if (peer.deeds.size() >= kDeedsMax) throw Distrust("sends more than anybody awaits");
  const auto take = [](Mirror& group, int host, const auto& frame) { group.take(host, frame); };
  switch (kind) {
    case FrameKind::beat:
      return take_beat(from, frame_in<Beat>(reader));
    case FrameKind::failed:
      return take_failure(from, frame_in<FailedFrame>(reader));
    case FrameKind::file:
      take_file(from, frame_in<FileFrame>(reader), payload);
      break;
    case FrameKind::part:
      into_group(from, frame_in<PartFrame>(reader), payload, [](Mirror&, int, const PartFrame&) {});
      break;
    case FrameKind::chunk:
      into_group(from, frame_in<ChunkFrame>(reader), payload, take);
      break;
    case FrameKind::came:
      of_group(from, frame_in<CameFrame>(reader), take);
      break;
    case FrameKind::state:
      of_group(from, frame_in<StateFrame>(reader), take);
      break;
    case FrameKind::took:
      of_group(from, frame_in<TookFrame>(reader), take);
      break;
    case FrameKind::poison:
      of_group(from, frame_in<PoisonFrame>(reader), take);
      break;
    case FrameKind::ended:
      of_group(from, frame_in<PlaceFrame>(reader), [](Mirror& g, int host, const auto& f) { g.take_ended(host, f); });
      break;
    case FrameKind::stacks:
      of_group(from, frame_in<PlaceFrame>(reader), [](Mirror& g, int, const auto& f) { g.take_stacks(f); });
      break;
    default:
      throw Distrust("sends what no relay says");
  }
  act_in_order(from);
}

// What is said of a group that this host has left is passed over.
template <class Frame, class Act>
void RelayLoop::of_group(int from, const Frame& frame, Act act) {
  const MirrorPtr group = mirror(frame.key);
  if (!group) return;
  peers_[std::size_t(from)].deeds.push_back({0, [group, frame, act, from] { act(*group, from, frame); }});
}

template <class Frame, class Act>
void RelayLoop::into_group(int from, const Frame& frame, Ticket payload, Act act) {
  const MirrorPtr group = mirror(frame.key);
  if (!group) {
    if (payload != 0) wire_->discard(payload);
    return;
  }
  const std::uint64_t bytes = payload != 0 ? wire_->announced_bytes(payload) : 0;
  const std::span<std::byte> room = group->room_for(from, frame, bytes);
  peers_[std::size_t(from)].deeds.push_back({payload, [group, frame, act, from] { act(*group, from, frame); }});
  if (payload != 0) wire_->receive(payload, room);
}

void RelayLoop::take_file(int from, const FileFrame& frame, Ticket payload) {
  Peer& peer = peers_[std::size_t(from)];
  const std::uint64_t bytes = payload != 0 ? wire_->announced_bytes(payload) : 0;
  if (!peer.files) throw Distrust("sends files to a host that takes none");
  if (bytes > kFilePart) throw Distrust("sends too large a part of a file");
  const auto part = std::make_shared<std::vector<std::byte>>(bytes);
  peer.deeds.push_back({payload, [&peer, frame, part] { peer.files->take(frame, *part); }});
  if (payload != 0) wire_->receive(payload, *part);
}

void RelayLoop::take_failure(int from, const FailedFrame& frame) {
  const std::lock_guard lock(board_.mutex);
  if (board_.failed_elsewhere.empty())
    board_.failed_elsewhere = fmt::format("host {} ({}): {}", from, plan_.names[std::size_t(from)], frame.text);
}

// A payload has gone, or has come: what waited for it is done, and what came behind it.
void RelayLoop::over(Ticket ticket) {
  if (outgoing_.erase(ticket) > 0) {
    if (ticket != file_ticket_) return;
    file_ticket_ = 0;
    return send_files();
  }
  for (std::size_t from = 0; from < peers_.size(); ++from) {
    std::deque<Deed>& deeds = peers_[from].deeds;
    const auto found =
        std::find_if(deeds.begin(), deeds.end(), [&](const Deed& deed) { return deed.payload == ticket; });
    if (found == deeds.end()) continue;
    found->payload = 0;
    return act_in_order(int(from));
  }
}

void RelayLoop::act_in_order(int from) {
  std::deque<Deed>& deeds = peers_[std::size_t(from)].deeds;
  try {
    while (!deeds.empty() && deeds.front().payload == 0) {
      const std::function<void()> act = std::move(deeds.front().act);
      deeds.pop_front();
      act();
    }
  } catch (const Distrust& wrong) {
    deeds.clear();
    if (!wire_->closed(from)) wire_->cut_off(from, fmt::format("host {} {}", from, wrong.what()));
  }
}

void RelayLoop::damaged(int from, Ticket) {
  if (!wire_->closed(from)) wire_->cut_off(from, fmt::format("what host {} sent was damaged on its way", from));
}

void RelayLoop::take_beat(int from, const Beat& beat) {
  Peer& peer = peers_[std::size_t(from)];
  const std::int64_t now = monotonic_ns();
  peer.beat_ns = beat.now_ns;
  peer.beat_came_ns = now;
  if (beat.echo_ns <= 0 || beat.echo_ns > now || beat.held_ns < 0 || beat.held_ns > now - beat.echo_ns) return;
  const std::int64_t trip = now - beat.echo_ns - beat.held_ns;
  if (trip >= peer.round_trip_ns) return;
  peer.round_trip_ns = trip;
  const std::lock_guard lock(board_.mutex);
  board_.gave[std::size_t(from)].clock_ns = std::int64_t(std::uint64_t(beat.now_ns) - std::uint64_t(now)) + trip / 2;
}

// The next part of a file, or, behind the last, the summary.
void RelayLoop::send_files() {
  FileFrame frame;
  std::span<const std::byte> bytes;
  while (!wire_->closed(0) && sender_ && sender_->next(frame, bytes)) {
    file_ticket_ = wire_->send(0, to_bytes(FrameKind::file, frame), bytes);
    if (file_ticket_ == 0) continue;  // an empty part
    outgoing_[file_ticket_] = {0, nullptr};
    return;
  }
  sender_.reset();
  if (summary_ && !wire_->closed(0)) wire_->send_text(0, std::as_bytes(std::span(*summary_)));
  summary_.reset();
}

}  // namespace seeksim::harness::torch
