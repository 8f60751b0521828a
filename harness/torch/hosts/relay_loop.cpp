#include "harness/torch/hosts/relay_loop.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "runtime/backend/wire/bytes.h"

namespace seeksim::harness::torch {

using pytorch::Far;
using pytorch::monotonic_ns;
using pytorch::NoteKind;
using runtime::from_bytes;
using runtime::Malformed;
using runtime::to_bytes;

namespace {

constexpr std::int64_t kMs = 1'000'000;
constexpr std::int64_t kTick_ns = 50 * kMs;
constexpr std::int64_t kBeat_ns = 500 * kMs;
constexpr std::int64_t kQuiet_ns = 5'000 * kMs;  // a connection that ends after so much silence was cut, not closed
constexpr std::int64_t kToStop_ns = 10'000 * kMs;
constexpr int kReadsInARow = 64;            // before ranks are heard again
constexpr std::size_t kDeedsMax = 1 << 14;  // frames that wait for a payload

}  // namespace

RelayLoop::RelayLoop(const RelayPlan& plan, std::unique_ptr<runtime::TcpWire> wire, Board& board, RanksDoor& door,
                     int bell)
    : plan_(plan), wire_(std::move(wire)), board_(board), door_(door), bell_(bell), peers_(plan.names.size()) {
  for (std::size_t host = 0; host < peers_.size(); ++host) {
    peers_[host].heard_ns = monotonic_ns();
    if (plan_.host == 0 && is_other(int(host)))
      peers_[host].files = std::make_unique<FileReceiver>(plan_.folder, plan_.files_bytes_max);
  }
  wire_->listen(this);
}

void RelayLoop::run() {
  while (!asked_to_stop()) {
    wait();
    obey();
    for (int i = 0; i < kReadsInARow && wire_->poll(); ++i) {
    }
    take_texts();
    hear_ranks();
    for (std::size_t host = 0; host < peers_.size(); ++host) look_at(int(host), monotonic_ns());
    if (monotonic_ns() >= next_tick_ns_) tick();
  }
}

// Once all that has to go out has gone, or has nowhere to go, or nobody takes it.
bool RelayLoop::asked_to_stop() {
  const std::lock_guard lock(board_.mutex);
  if (!board_.stop) return false;
  if (stop_until_ns_ == 0) stop_until_ns_ = monotonic_ns() + kToStop_ns;
  if (monotonic_ns() > stop_until_ns_) return true;
  for (std::size_t host = 0; host < peers_.size(); ++host) {
    if (is_other(int(host)) && !peers_[host].lost && board_.verdict && wire_->unsent(int(host))) return false;
  }
  return true;
}

void RelayLoop::wait() {
  std::vector<pollfd> waiting = {{bell_, POLLIN, 0}};
  for (std::size_t host = 0; host < peers_.size(); ++host) {
    if (!is_other(int(host)) || wire_->closed(int(host))) continue;
    waiting.push_back({wire_->descriptor(int(host)), short(wire_->unsent(int(host)) ? POLLIN | POLLOUT : POLLIN), 0});
  }
  door_.add_to(waiting);
  const std::int64_t left_ns = std::max<std::int64_t>(next_tick_ns_ - monotonic_ns(), 0);
  ::poll(waiting.data(), waiting.size(), int((left_ns + kMs - 1) / kMs));
}

// What the command wants.
void RelayLoop::obey() {
  std::uint64_t rung = 0;
  if (::read(bell_, &rung, sizeof rung) != ssize_t(sizeof rung)) return;
  std::optional<std::string> failure, verdict;
  {
    const std::lock_guard lock(board_.mutex);
    failure = std::exchange(board_.own_failure, std::nullopt);
    if (board_.files) sender_ = std::make_unique<FileSender>(std::move(*board_.files));
    board_.files.reset();
    if (board_.summary) summary_ = std::exchange(board_.summary, std::nullopt);
    verdict = board_.verdict;
  }
  for (std::size_t host = 0; host < peers_.size(); ++host) {
    if (!is_other(int(host)) || peers_[host].lost) continue;
    if (failure) wire_->send(int(host), to_bytes(FrameKind::failed, FailedFrame{failure->substr(0, 1000)}), {});
    if (verdict) wire_->send_text(int(host), std::as_bytes(std::span(*verdict)));
  }
  if (summary_ && file_ticket_ == 0) send_files();
}

void RelayLoop::send(int host, std::span<const std::byte> head, std::span<const std::byte> payload, MirrorPtr keeps) {
  if (wire_->closed(host)) return;
  const Ticket ticket = wire_->send(host, head, payload);
  if (ticket != 0) outgoing_[ticket] = {host, std::move(keeps)};
}

// ---- ranks of this host
// ----------------------------------------------------------------------------------------------

void RelayLoop::hear_ranks() {
  door_.accept();
  for (RankCaller& caller : door_.callers()) {
    while (auto said = RanksDoor::hear(caller)) {
      try {
        heard(caller, *said);
      } catch (const std::runtime_error& wrong) {
        RanksDoor::answer(caller, wrong.what());
        RanksDoor::hang_up(caller);
      }
      if (said->file >= 0) ::close(said->file);
    }
  }
}

void RelayLoop::heard(RankCaller& caller, RanksDoor::Said& said) {
  if (!caller.key) {
    pytorch::Entrance entrance;
    if (said.bytes.size() != sizeof entrance)
      throw std::runtime_error("the relay is of another build than the backend");
    std::memcpy(&entrance, said.bytes.data(), sizeof entrance);
    return enter(caller, entrance, std::exchange(said.file, -1));
  }
  const MirrorPtr group = mirror(*caller.key);
  pytorch::Note note;
  std::memcpy(&note, said.bytes.data(), std::min(sizeof note, said.bytes.size()));
  if (said.bytes.size() < sizeof note || note.parts > pytorch::kMaxRanks ||
      said.bytes.size() != sizeof note + note.parts * sizeof(pytorch::Part))
    throw std::runtime_error("a note that is cut short");
  std::vector<pytorch::Part> parts(note.parts);
  if (!parts.empty()) std::memcpy(parts.data(), said.bytes.data() + sizeof note, parts.size() * sizeof(pytorch::Part));
  if (group) group->noted(caller.place, note, parts);
}

void RelayLoop::enter(RankCaller& caller, const pytorch::Entrance& entrance, int file) {
  if (entrance.kind != NoteKind::enter || entrance.version != pytorch::kLineVersion) {
    if (file >= 0) ::close(file);
    throw std::runtime_error("the relay is of another build than the backend");
  }
  MirrorPtr group = mirror(entrance.key);
  if (file >= 0) {
    pytorch::Segment segment = pytorch::Segment::of_file(file, entrance.size);
    if (group) throw std::runtime_error("a group has two memories on one host");
    // The mirror is kept by what it has sent, so it must not keep itself.
    const auto self = std::make_shared<std::weak_ptr<Mirror>>();
    group = std::make_shared<Mirror>(
        entrance, plan_.host, std::move(segment),
        [this, self](int host, std::span<const std::byte> head, std::span<const std::byte> payload) {
          send(host, head, payload, self->lock());
        });
    *self = group;
    for (std::size_t host = 0; host < peers_.size(); ++host) {
      if (peers_[host].lost) group->lost(int(host), Far::host_gone, peers_[host].heard_ns);
    }
  }
  if (!group) throw std::runtime_error("the group's memory was not handed over");
  group->entered(entrance, caller.pid);
  mirrors_[entrance.key] = group;
  caller.key = entrance.key;
  caller.place = entrance.place;
  RanksDoor::answer(caller, "");
}

RelayLoop::MirrorPtr RelayLoop::mirror(const pytorch::GroupKey& key) const {
  const auto found = mirrors_.find(key);
  return found == mirrors_.end() ? nullptr : found->second;
}

// A group whose ranks here have all left it needs no memory here.
void RelayLoop::forget_groups() {
  std::map<pytorch::GroupKey, MirrorPtr> kept;
  for (const RankCaller& caller : door_.callers()) {
    if (!caller.key || caller.fd < 0) continue;
    if (const auto found = mirrors_.find(*caller.key); found != mirrors_.end()) kept.insert(*found);
  }
  // Who has hung up, and lives: its death still has to be told to those who go on waiting.
  std::erase_if(door_.callers(), [&](RankCaller& caller) {
    const MirrorPtr group = caller.key ? mirror(*caller.key) : nullptr;
    if (group && caller.process->gone()) {
      group->ended(caller.place);
      RanksDoor::hang_up(caller);
      return true;
    }
    return caller.fd < 0 && (!caller.key || !kept.contains(*caller.key));
  });
  mirrors_ = std::move(kept);
}

void RelayLoop::tick() {
  const std::int64_t now = monotonic_ns();
  next_tick_ns_ = now + kTick_ns;
  std::vector<std::int64_t> heard_ns;
  for (std::size_t host = 0; host < peers_.size(); ++host)
    heard_ns.push_back(is_other(int(host)) ? peers_[host].heard_ns : now);
  for (const auto& [key, group] : mirrors_) group->tick(heard_ns);
  forget_groups();
  if (now < next_beat_ns_) return;
  next_beat_ns_ = now + kBeat_ns;
  for (std::size_t host = 0; host < peers_.size(); ++host) {
    const Peer& peer = peers_[host];
    if (!is_other(int(host)) || peer.lost || wire_->unsent(int(host))) continue;  // what is on its way says enough
    const Beat beat{now, peer.beat_ns, peer.beat_ns == 0 ? 0 : now - peer.beat_came_ns};
    wire_->send(int(host), to_bytes(FrameKind::beat, beat), {});
  }
}

// ---- other hosts
// -----------------------------------------------------------------------------------------------------

void RelayLoop::look_at(int host, std::int64_t now_ns) {
  Peer& peer = peers_[std::size_t(host)];
  if (!is_other(host) || peer.lost) return;
  if (const std::uint64_t received = wire_->received(host); received != peer.received) {
    peer.received = received;
    peer.heard_ns = now_ns;
  }
  const std::int64_t silent_ns = now_ns - peer.heard_ns;
  if (wire_->closed(host)) {
    lose(host, silent_ns > kQuiet_ns ? Far::unreachable : Far::host_gone, wire_->why_closed(host));
  } else if (double(silent_ns) * 1e-9 > plan_.unreachable_s) {
    const std::string why = fmt::format("nothing has come from it for {:.0f} s", double(silent_ns) * 1e-9);
    wire_->cut_off(host, why);
    lose(host, Far::unreachable, why);
  }
}

void RelayLoop::lose(int host, Far why, const std::string& text) {
  Peer& peer = peers_[std::size_t(host)];
  peer.lost = true;
  peer.deeds.clear();
  for (const auto& [key, group] : mirrors_) group->lost(host, why, peer.heard_ns);
  std::erase_if(outgoing_, [host](const auto& one) { return one.second.host == host; });
  if (host == 0) file_ticket_ = 0;
  const std::lock_guard lock(board_.mutex);
  board_.why_lost[std::size_t(host)] = text;
  board_.changed.notify_all();
}

void RelayLoop::take_texts() {
  for (std::size_t host = 0; host < peers_.size(); ++host) {
    if (!is_other(int(host))) continue;
    const auto text = wire_->text_from(int(host));
    if (!text) continue;
    const std::string told(reinterpret_cast<const char*>(text->data()), text->size());
    const std::lock_guard lock(board_.mutex);
    if (plan_.host == 0) {
      HostGave& gave = board_.gave[host];
      gave.problem = peers_[host].files->problem();
      gave.files = peers_[host].files->whole();
      gave.summary = told;
    } else if (host == 0) {
      board_.verdict_came = told;
    }
    board_.changed.notify_all();
  }
}

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
