#include "pipe_world.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <thread>

namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr) throw std::runtime_error(std::string("pipes: ") + name + " is not set");
  return value;
}

// A pipe whose other end is not open yet is tried again.
int opened(const std::string& path, int how, Clock::time_point deadline) {
  for (;;) {
    if (::mkfifo(path.c_str(), 0600) != 0 && errno != EEXIST) throw std::runtime_error("pipes: no pipe at " + path);
    const int fd = ::open(path.c_str(), how | O_NONBLOCK | O_CLOEXEC);
    if (fd >= 0) return fd;
    if (Clock::now() > deadline) throw std::runtime_error("pipes: nobody opened " + path + " within a minute");
    std::this_thread::sleep_for(1ms);
  }
}

}  // namespace

PipeWire::PipeWire(const std::string& folder, int rank, int size) : peers_(std::size_t(size)) {
  std::signal(SIGPIPE, SIG_IGN);  // a rank that is gone is missed by who waits for it
  const auto deadline = Clock::now() + 60s;
  const auto path = [&](int from, int to) { return folder + "/" + std::to_string(from) + "-" + std::to_string(to); };
  for (int peer = 0; peer < size; ++peer)
    if (peer != rank) peers_[std::size_t(peer)].in = opened(path(peer, rank), O_RDONLY, deadline);
  for (int peer = 0; peer < size; ++peer)
    if (peer != rank) peers_[std::size_t(peer)].out = opened(path(rank, peer), O_WRONLY, deadline);
}

PipeWire::~PipeWire() {
  for (const Peer& peer : peers_)
    for (const int fd : {peer.in, peer.out})
      if (fd >= 0) ::close(fd);
}

void PipeWire::post(int to, Kind kind, std::span<const std::byte> head, std::span<const std::byte> payload,
                    Ticket ticket) {
  const Prefix prefix{kind, head.size(), payload.size()};
  Outgoing out;
  const auto begin = std::as_bytes(std::span(&prefix, 1));
  out.own.assign(begin.begin(), begin.end());
  out.own.insert(out.own.end(), head.begin(), head.end());
  if (kind == kText)
    out.own.insert(out.own.end(), payload.begin(), payload.end());
  else
    out.payload = payload;
  out.ticket = ticket;
  peers_[std::size_t(to)].waiting.push_back(std::move(out));
}

PipeWire::Ticket PipeWire::send(int to, std::span<const std::byte> head, std::span<const std::byte> payload) {
  const Ticket ticket = payload.empty() ? 0 : ++tickets_;
  post(to, kMessage, head, payload, ticket);
  return ticket;
}

void PipeWire::receive(Ticket payload, std::span<std::byte> into) {
  Incoming& incoming = incoming_.at(payload);
  std::copy(incoming.come.begin(), incoming.come.end(), into.begin());
  incoming.into = into;
  incoming.wanted = true;
}

bool PipeWire::text_from(int rank, std::vector<std::byte>& text) {
  auto& texts = peers_[std::size_t(rank)].texts;
  if (texts.empty()) return false;
  text = std::move(texts.front());
  texts.pop_front();
  return true;
}

bool PipeWire::has_unsent() const {
  return std::any_of(peers_.begin(), peers_.end(), [](const Peer& peer) { return !peer.waiting.empty(); });
}

bool PipeWire::poll() {
  bool moved = false;
  for (std::size_t rank = 0; rank < peers_.size(); ++rank) {
    if (peers_[rank].in < 0) continue;
    moved |= write_to(peers_[rank]);
    moved |= read_from(int(rank), peers_[rank]);
  }
  return tell() || moved;
}

bool PipeWire::write_to(Peer& peer) {
  bool moved = false;
  while (!peer.waiting.empty()) {
    Outgoing& out = peer.waiting.front();
    const bool own = out.sent < out.own.size();
    const std::span<const std::byte> part =
        own ? std::span<const std::byte>(out.own).subspan(out.sent) : out.payload.subspan(out.sent - out.own.size());
    const ssize_t n = part.empty() ? 0 : ::write(peer.out, part.data(), part.size());
    if (n < 0) {
      if (errno == EPIPE) peer.waiting.clear();  // nobody reads any more
      return moved;
    }
    moved = true;
    out.sent += std::size_t(n);
    if (out.sent < out.own.size() + out.payload.size()) continue;
    if (out.ticket != 0) over_.push_back(out.ticket);
    peer.waiting.pop_front();
  }
  return moved;
}

bool PipeWire::read_from(int rank, Peer& peer) {
  std::byte buffer[1 << 16];
  const ssize_t n = ::read(peer.in, buffer, sizeof buffer);
  if (n <= 0) return false;
  peer.bytes.insert(peer.bytes.end(), buffer, buffer + n);
  while (take(rank, peer)) {
  }
  return true;
}

// Takes what is whole from the front of the bytes: a part of the payload that comes now, a text, or a head.
bool PipeWire::take(int rank, Peer& peer) {
  const auto drop = [&](std::size_t n) {
    peer.bytes.erase(peer.bytes.begin(), peer.bytes.begin() + std::ptrdiff_t(n));
  };
  if (peer.payload != 0) {
    Incoming& incoming = incoming_.at(peer.payload);
    const std::size_t n = std::min<std::size_t>(peer.bytes.size(), incoming.bytes - incoming.come.size());
    if (n == 0) return false;
    if (incoming.wanted)
      std::copy_n(peer.bytes.begin(), n, incoming.into.begin() + std::ptrdiff_t(incoming.come.size()));
    incoming.come.insert(incoming.come.end(), peer.bytes.begin(), peer.bytes.begin() + std::ptrdiff_t(n));
    drop(n);
    if (incoming.come.size() == incoming.bytes) peer.payload = 0;
    return true;
  }
  Prefix prefix;
  if (peer.bytes.size() < sizeof prefix) return false;
  std::memcpy(&prefix, peer.bytes.data(), sizeof prefix);
  const std::size_t whole = sizeof prefix + prefix.head_bytes + (prefix.kind == kText ? prefix.payload_bytes : 0);
  if (peer.bytes.size() < whole) return false;
  std::vector<std::byte> body(peer.bytes.begin() + sizeof prefix, peer.bytes.begin() + std::ptrdiff_t(whole));
  drop(whole);
  if (prefix.kind == kText) {
    peer.texts.push_back(std::move(body));
    return true;
  }
  if (prefix.payload_bytes > 0) {
    peer.payload = ++tickets_;
    incoming_[peer.payload].bytes = prefix.payload_bytes;
  }
  arrived_.push_back({rank, std::move(body), peer.payload});
  return true;
}

// A listener may send and receive at once, so it is called when everything else is in order.
bool PipeWire::tell() {
  for (auto at = incoming_.begin(); at != incoming_.end();) {
    const Incoming& incoming = at->second;
    const bool done = (incoming.wanted || incoming.discarded) && incoming.come.size() == incoming.bytes;
    if (done && incoming.wanted) over_.push_back(at->first);
    at = done ? incoming_.erase(at) : std::next(at);
  }
  if (listener_ == nullptr) {
    over_.clear();  // of a run that is over
    return false;
  }
  const bool moved = !over_.empty() || !arrived_.empty();
  for (; !over_.empty(); over_.pop_front()) listener_->over(over_.front());
  while (!arrived_.empty()) {
    const Arrived message = std::move(arrived_.front());
    arrived_.pop_front();
    listener_->arrived(message.from, message.head, message.payload);
  }
  return moved;
}

PipeWorld::PipeWorld() : folder_(variable("PIPES")) {
  rank_ = std::atoi(variable("RANK").c_str());
  size_ = std::atoi(variable("WORLD_SIZE").c_str());
  std::filesystem::create_directories(folder_);
  wire_ = std::make_unique<PipeWire>(folder_, rank_, size_);
}

void PipeWorld::turn() {
  if (std::filesystem::exists(folder_ + "/aborted")) std::_Exit(3);
  if (!wire_->poll()) std::this_thread::sleep_for(200us);
}

// What a process says last has to be in the pipes before it ends.
void PipeWorld::flush() {
  for (const auto deadline = Clock::now() + 10s; wire_->has_unsent() && Clock::now() < deadline;) turn();
}

std::string PipeWorld::broadcast(std::string text) {
  if (rank_ == 0) {
    for (int to = 1; to < size_; ++to) wire_->send_text(to, std::as_bytes(std::span(text)));
    flush();
    return text;
  }
  std::vector<std::byte> come;
  while (!wire_->text_from(0, come)) turn();
  return {reinterpret_cast<const char*>(come.data()), come.size()};
}

std::vector<std::vector<std::byte>> PipeWorld::gather(std::vector<std::byte> mine, int count,
                                                      seeksim::runtime::TimeNs patience) {
  if (rank_ != 0) {
    wire_->send_text(0, mine);
    flush();
    return {};
  }
  std::vector<std::vector<std::byte>> all(static_cast<std::size_t>(count));
  all[0] = std::move(mine);
  auto last = Clock::now();
  int missing = count - 1;
  while (missing > 0 && Clock::now() - last < std::chrono::nanoseconds(patience)) {
    turn();
    for (int rank = 1; rank < count; ++rank) {
      if (!all[std::size_t(rank)].empty() || !wire_->text_from(rank, all[std::size_t(rank)])) continue;
      last = Clock::now();
      --missing;
    }
  }
  return all;
}

void PipeWorld::abort(int exit_status) {
  const int fd = ::open((folder_ + "/aborted").c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
  if (fd >= 0) ::close(fd);
  std::_Exit(exit_status);
}
