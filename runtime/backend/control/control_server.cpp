#include "runtime/backend/control/control_server.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/random.h>

#include <algorithm>
#include <stdexcept>

namespace seeksim::runtime {
namespace {

constexpr TimeNs kTimeToSayHello = 5 * kSecond;
constexpr std::size_t kStrangersMax = 64;  // connections that have not said hello yet

// Compares every byte whatever it finds, so that the time it takes reveals nothing.
bool same(const std::string& a, const std::string& b) {
  if (a.size() != b.size()) return false;
  unsigned different = 0;
  for (std::size_t i = 0; i < a.size(); ++i) different |= unsigned(a[i] ^ b[i]);
  return different == 0;
}

}  // namespace

std::string new_token() {
  std::array<unsigned char, kTokenBytes / 2> bytes{};
  if (::getrandom(bytes.data(), bytes.size(), 0) != ssize_t(bytes.size()))
    throw std::runtime_error("the system gives no random bytes for a token");
  std::string token;
  for (const unsigned char byte : bytes) token += fmt::format("{:02x}", byte);
  return token;
}

ControlServer::ControlServer(const Options& options, Listener listener)
    : options_(options),
      listener_(std::move(listener)),
      store_(options.ranks, options.heartbeat_timeout_ns, *this),
      port_(options.port),
      listening_(listen_at(options.address, port_)),
      here_(std::size_t(options.ranks), false) {}

void ControlServer::step(int timeout_ms) {
  std::vector<pollfd> waiting = {{listening_.fd(), POLLIN, 0}};
  for (const Connection& connection : connections_) waiting.push_back({connection.socket.fd(), POLLIN, 0});
  if (::poll(waiting.data(), waiting.size(), timeout_ms) > 0) {
    // From the back, because closed connections are removed on the way.
    for (std::size_t i = connections_.size(); i-- > 0;) {
      if (waiting[i + 1].revents == 0 || read(connections_[i])) continue;
      const Connection closed = std::move(connections_[i]);
      connections_.erase(connections_.begin() + std::ptrdiff_t(i));
      if (closed.rank < 0 || closed.left) continue;
      if (std::find(gone_.begin(), gone_.end(), closed.rank) == gone_.end()) gone_.push_back(closed.rank);
      store_.died(closed.rank);
    }
    if (waiting[0].revents != 0) {
      Connection fresh;
      fresh.socket = accept_from(listening_);
      give_up_when_unreachable(fresh.socket);
      fresh.since = clock_.now();
      const auto strangers = std::count_if(connections_.begin(), connections_.end(),
                                           [](const Connection& connection) { return connection.rank < 0; });
      if (fresh.socket.open() && std::size_t(strangers) < kStrangersMax) connections_.push_back(std::move(fresh));
    }
  }
  std::erase_if(connections_, [this](const Connection& connection) {
    if (!overdue(connection)) return false;
    refuse("said no hello");
    return true;
  });
  look_for_silence();
  store_.tick(clock_.now());
}

void ControlServer::look_for_silence() {
  if (options_.heartbeat_timeout_ns <= 0) return;
  for (const Connection& connection : connections_) {
    const bool watched = connection.rank >= 0 && connection.only_beats && !connection.left;
    if (!watched || clock_.now() - connection.since <= options_.heartbeat_timeout_ns) continue;
    if (std::find(silent_.begin(), silent_.end(), connection.rank) == silent_.end()) silent_.push_back(connection.rank);
  }
}

bool ControlServer::overdue(const Connection& connection) const {
  return connection.rank < 0 && clock_.now() - connection.since > kTimeToSayHello;
}

void ControlServer::refuse(const std::string& why) {
  ++refused_;
  listener_(-1, "a connection to the control plane was refused: it " + why);
}

bool ControlServer::read(Connection& connection) {
  std::array<std::byte, 1 << 16> bytes;
  const int n = connection.socket.receive(bytes);
  if (n < 0) return false;
  connection.reader.take({bytes.data(), std::size_t(n)});
  try {
    for (;;) {
      const bool known = connection.rank >= 0;
      const std::optional<Frame> frame = connection.reader.next(known ? kFrameBytesMax : kStrangerBytesMax);
      if (!frame) return true;
      if (known)
        handle(connection, *frame);
      else
        greet(connection, *frame);
    }
  } catch (const Malformed& bad) {
    refuse(connection.rank < 0 ? fmt::format("sent {}", bad.what())
                               : fmt::format("said it was rank {} and sent {}", connection.rank, bad.what()));
    return false;
  }
}

void ControlServer::greet(Connection& connection, const Frame& frame) {
  if (frame.kind != FrameKind::hello) throw Malformed("no hello first");
  Hello hello;
  from_bytes(frame.body, hello);
  if (!same(hello.token, options_.token)) throw Malformed("another run's token");
  if (hello.rank < 0 || hello.rank >= options_.ranks) throw Malformed("no rank of this run");
  const auto rank = std::size_t(hello.rank);
  if (!hello.only_beats && here_[rank]) throw Malformed("a rank that is here already");
  connection.rank = hello.rank;
  connection.only_beats = hello.only_beats;
  if (hello.only_beats) return store_.beat(hello.rank, clock_.now());
  here_[rank] = true;
  connection.socket.send(frame_bytes(FrameKind::welcome, {}));
  // A rank failed early: this one connects after the revoke was sent to all others, so it gets it now.
  if (store_.revoked() >= 0) revoked(hello.rank, std::uint32_t(store_.revoked()));
}

void ControlServer::handle(Connection& connection, const Frame& frame) {
  const int rank = connection.rank;
  if (connection.only_beats) return handle_beat(connection, frame);
  switch (frame.kind) {
    case FrameKind::ballot: {
      PollKey key;
      Ballot ballot;
      TimeNs timeout_ns = 0;
      from_bytes(frame.body, key, ballot, timeout_ns);
      return store_.ballot(rank, key, ballot, clock_.now(), timeout_ns);
    }
    case FrameKind::revoke: {
      std::uint32_t epoch = 0;
      std::string why;
      from_bytes(frame.body, epoch, why);
      listener_(rank, fmt::format("revokes epoch {}: {}", epoch, why));
      return store_.revoke(rank, epoch);
    }
    case FrameKind::enter: {
      std::uint32_t epoch = 0;
      std::vector<int> members;
      from_bytes(frame.body, epoch, members);
      return send(rank, FrameKind::entered, to_bytes(store_.enter(rank, epoch, std::move(members))));
    }
    case FrameKind::done:
      connection.left = true;
      return store_.done(rank);
    default:
      throw Malformed(fmt::format("a {}, which only the store sends", name(frame.kind)));
  }
}

void ControlServer::handle_beat(Connection& connection, const Frame& frame) {
  connection.since = clock_.now();
  switch (frame.kind) {
    case FrameKind::ready:
      ++ready_;
      break;
    case FrameKind::done:
      connection.left = true;
      return;
    case FrameKind::beat:
      break;
    default:
      throw Malformed("more than heartbeats over a connection for them");
  }
  store_.beat(connection.rank, connection.since);
}

void ControlServer::send(int rank, FrameKind kind, std::span<const std::byte> body) {
  for (Connection& connection : connections_) {
    if (connection.rank == rank && !connection.only_beats) connection.socket.send(frame_bytes(kind, body));
  }
}

void ControlServer::answer(int rank, const Answer& answer) { send(rank, FrameKind::answer, to_bytes(answer)); }
void ControlServer::revoked(int rank, std::uint32_t epoch) { send(rank, FrameKind::revoked, to_bytes(epoch)); }

}  // namespace seeksim::runtime
