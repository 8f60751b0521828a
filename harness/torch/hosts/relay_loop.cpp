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
constexpr int kReadsInARow = 64;  // before ranks are heard again
// Why a connection was closed, said of the other host: the wire calls it by its number.
std::string said_of_it(const std::string& why, int host) {
  for (const char* word : {"rank", "host"}) {
    const std::string start = fmt::format("{} {} ", word, host);
    if (why.starts_with(start)) return "it " + why.substr(start.size());
  }
  return why;
}

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
    if (!told_verdict_) verdict = board_.verdict;
    told_verdict_ |= verdict.has_value();
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

void RelayLoop::look_at(int host, std::int64_t now_ns) {
  Peer& peer = peers_[std::size_t(host)];
  if (!is_other(host) || peer.lost) return;
  if (const std::uint64_t received = wire_->received(host); received != peer.received) {
    peer.received = received;
    peer.heard_ns = now_ns;
  }
  const std::int64_t silent_ns = now_ns - peer.heard_ns;
  if (wire_->closed(host)) {
    lose(host, silent_ns > kQuiet_ns ? Far::unreachable : Far::host_gone, said_of_it(wire_->why_closed(host), host));
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
  if (peer.files) board_.gave[std::size_t(host)].files = peer.files->begun();
  if (board_.failed_elsewhere.empty())
    board_.failed_elsewhere =
        fmt::format("host {} ({}), which is lost: {}", host, plan_.names[std::size_t(host)], text);
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
      gave.files = peers_[host].files->begun();
      gave.summary = told;
    } else if (host == 0) {
      board_.verdict_came = told;
    }
    board_.changed.notify_all();
  }
}

}  // namespace seeksim::harness::torch
