#include "runtime/backend/wire/rendezvous.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <optional>
#include <set>
#include <thread>

#include "runtime/backend/wire/bytes.h"
#include "runtime/backend/wire/checksum.h"
#include "runtime/backend/wire/secret.h"

namespace seeksim::runtime {
namespace {

constexpr std::size_t kStrangersMax = 64;  // connections that have not proved who they are
constexpr std::size_t kDropsTold = 4;
constexpr double kBetweenLooks_s = 0.5;

using SteadyClock = std::chrono::steady_clock;
using Deadline = SteadyClock::time_point;
Deadline in(double seconds) {
  return SteadyClock::now() + std::chrono::duration_cast<SteadyClock::duration>(std::chrono::duration<double>(seconds));
}

// ---- what is said --------------------------------------------------------------------------------------------------

// Sent by the accepting side, at once.
struct Greeting {
  std::uint64_t magic = 0x32727465656b73ull;
  Nonce nonce{};
};
// Sent by the connecting side.
struct Introduction {
  std::uint64_t magic = 0x6e72757465656b74ull;
  std::int32_t rank = -1, to = -1;
  std::int32_t size = 0;
  std::uint16_t port = 0;  // where others reach it
  Nonce nonce{};
  Digest256 proof{};
};
// The answer to it.
struct Verdict {
  enum class What : std::uint8_t { welcome, another_job, another_secret, taken, count_ } what = What::count_;
  Digest256 proof{};
};
// Where the others are, from rank 0, when all are there.
struct Table {
  std::vector<std::string> addresses;
  std::vector<std::uint16_t> ports;
};

template <class T>
std::size_t bytes_in() {
  return to_bytes(T{}).size();
}

// Each side's proof names the side, both numbers and all that was said, so that none can be used anywhere else.
Digest256 proof(const std::string& secret, const char* side, const Nonce& drawn, const Introduction& said) {
  return hmac_sha256(secret, to_bytes(std::string(side), drawn, said.rank, said.to, said.size, said.port, said.nonce));
}

const char* text_of(Verdict::What what) {
  switch (what) {
    case Verdict::What::another_job:
      return "belongs to another job, or has another WORLD_SIZE";
    case Verdict::What::another_secret:
      return "has another secret (SEEKSIM_TOKEN), or bytes were changed on their way";
    case Verdict::What::taken:
      return "has been joined by another process of this RANK";
    default:
      return "refuses this process";
  }
}

void look_up(const Rendezvous& at) {
  if (at.give_up != nullptr && at.give_up()) throw std::runtime_error("this process was asked to stop");
}

// ---- the accepting side --------------------------------------------------------------------------------------------

// Takes connections until one of each awaited rank has come. Before rank 0 has sent the table, a place that is left is
// free again. After it, the job has begun: a rank that came and left is the run's to miss, and nobody comes instead.
class Reception {
 public:
  Reception(const Rendezvous& at, const Socket& listener, std::vector<Socket>& peers, int first_awaited)
      : at_(at),
        listener_(listener),
        peers_(peers),
        first_(first_awaited),
        table_{std::vector<std::string>(peers.size()), std::vector<std::uint16_t>(peers.size())} {}

  void await_all(Deadline deadline) {
    while (!missing().empty()) {
      if (SteadyClock::now() > deadline) throw std::runtime_error(not_all_came());
      look_up(at_);
      wait();
      accept();
      for (Stranger& stranger : strangers_) listen_to(stranger);
      std::erase_if(strangers_, [](const Stranger& stranger) { return !stranger.socket.open(); });
      if (at_.rank == 0) look_for_leavers();
    }
  }
  // Where they are, as they said and as they came.
  Table& table() { return table_; }

 private:
  struct Stranger {
    Socket socket;
    Nonce drawn{};
    std::vector<std::byte> said;
    Deadline until;
  };

  std::vector<int> missing() const {
    std::vector<int> ranks;
    for (int rank = first_; rank < at_.size; ++rank) {
      if (!peers_[std::size_t(rank)].open()) ranks.push_back(rank);
    }
    return ranks;
  }

  std::string not_all_came() const {
    std::string text = fmt::format("rank {} listened for {} seconds at {}:{}, and rank {} did not come", at_.rank,
                                   at_.seconds, own_address(listener_), at_.port, fmt::join(missing(), ", "));
    if (dropped_ > 0)
      text += fmt::format("; {} connection{} refused: {}{}", dropped_, dropped_ == 1 ? " was" : "s were",
                          fmt::join(drops_, "; "), dropped_ > drops_.size() ? "; .." : "");
    return text;
  }

  void wait() {
    std::vector<pollfd> waiting = {{listener_.fd(), POLLIN, 0}};
    for (const Stranger& stranger : strangers_) waiting.push_back({stranger.socket.fd(), POLLIN, 0});
    ::poll(waiting.data(), waiting.size(), 50);
  }

  void accept() {
    for (Socket socket = accept_from(listener_); socket.open(); socket = accept_from(listener_)) {
      if (strangers_.size() == kStrangersMax) {
        drop(strangers_.front(), "pushed out by others");
        strangers_.erase(strangers_.begin());
      }
      Stranger stranger{std::move(socket), new_nonce(), {}, in(at_.stranger_seconds)};
      Greeting greeting;
      greeting.nonce = stranger.drawn;
      stranger.socket.send_some(to_bytes(greeting));  // fits into what an empty connection holds
      strangers_.push_back(std::move(stranger));
    }
  }

  void drop(Stranger& stranger, const std::string& why) {
    ++dropped_;
    if (drops_.size() < kDropsTold) drops_.push_back(why);
    stranger.socket.close();
  }

  void listen_to(Stranger& stranger) {
    static const std::size_t whole = bytes_in<Introduction>();
    std::vector<std::byte> bytes(whole - stranger.said.size());
    const int n = stranger.socket.receive(bytes);
    if (n < 0) return drop(stranger, "closed before it said who it is");
    stranger.said.insert(stranger.said.end(), bytes.begin(), bytes.begin() + n);
    if (stranger.said.size() == whole) return judge(stranger);
    if (SteadyClock::now() > stranger.until) drop(stranger, "did not say who it is");
  }

  void judge(Stranger& stranger) {
    Introduction from;
    from_bytes(stranger.said, from);
    if (from.magic != Introduction{}.magic) return drop(stranger, "said what no process of seeksim says");
    Verdict verdict;
    verdict.what = verdict_on(stranger, from);
    if (verdict.what == Verdict::What::welcome) verdict.proof = proof(at_.secret, "accepts", stranger.drawn, from);
    stranger.socket.send_some(to_bytes(verdict));
    if (verdict.what != Verdict::What::welcome)
      return drop(stranger, fmt::format("said it is rank {}, and this one {}", from.rank, text_of(verdict.what)));
    const auto place = std::size_t(from.rank);
    table_.addresses[place] = peer_address(stranger.socket);
    table_.ports[place] = from.port;
    peers_[place] = std::move(stranger.socket);
  }

  Verdict::What verdict_on(const Stranger& stranger, const Introduction& from) const {
    // The proof first: a stranger without the secret learns nothing about the job.
    if (!same_digest(from.proof, proof(at_.secret, "connects", stranger.drawn, from)))
      return Verdict::What::another_secret;
    if (from.size != at_.size || from.to != at_.rank || from.rank < first_ || from.rank >= at_.size)
      return Verdict::What::another_job;
    return peers_[std::size_t(from.rank)].open() ? Verdict::What::taken : Verdict::What::welcome;
  }

  // A process that was let in says nothing before all are there.
  void look_for_leavers() {
    if (SteadyClock::now() < next_look_) return;
    next_look_ = in(0.2);
    for (int rank = first_; rank < at_.size; ++rank) {
      Socket& peer = peers_[std::size_t(rank)];
      std::byte byte;
      if (peer.open() && peer.receive({&byte, 1}) != 0) peer.close();
    }
  }

  const Rendezvous& at_;
  const Socket& listener_;
  std::vector<Socket>& peers_;
  const int first_;
  Table table_;
  std::vector<Stranger> strangers_;
  Deadline next_look_;
  std::size_t dropped_ = 0;
  std::vector<std::string> drops_;
};

// ---- the connecting side -------------------------------------------------------------------------------------------

// Nothing: the other side has closed.
std::optional<std::vector<std::byte>> receive(Socket& socket, std::size_t n, Deadline deadline,
                                              const std::string& from) {
  std::vector<std::byte> bytes(n);
  for (std::size_t have = 0; have < n;) {
    const int more = socket.receive(std::span(bytes).subspan(have));
    if (more < 0) return std::nullopt;
    if (SteadyClock::now() > deadline) throw std::runtime_error(from + " says nothing");
    if (more == 0) readable(socket, 100);
    have += std::size_t(more);
  }
  return bytes;
}

// False: the other side closed before it had judged, as one does that has too many strangers.
bool introduce(const Rendezvous& at, Socket& socket, int to, std::uint16_t own_port, Deadline deadline) {
  const std::string there = to == 0 ? fmt::format("rank 0 at {}:{}", at.master, at.port) : fmt::format("rank {}", to);
  const auto greeted = receive(socket, bytes_in<Greeting>(), deadline, there);
  if (!greeted) return false;
  Greeting greeting;
  from_bytes(*greeted, greeting);
  if (greeting.magic != Greeting{}.magic)
    throw std::runtime_error(there + ": the process that answers there is not seeksim");
  Introduction own;
  own.rank = at.rank;
  own.to = to;
  own.size = at.size;
  own.port = own_port;
  own.nonce = new_nonce();
  own.proof = proof(at.secret, "connects", greeting.nonce, own);
  if (!socket.send(to_bytes(own))) return false;
  const auto judged = receive(socket, bytes_in<Verdict>(), deadline, there);
  if (!judged) return false;
  Verdict verdict;
  from_bytes(*judged, verdict);
  if (verdict.what != Verdict::What::welcome)
    throw std::runtime_error(fmt::format("{} {}", there, text_of(verdict.what)));
  if (!same_digest(verdict.proof, proof(at.secret, "accepts", greeting.nonce, own)))
    throw std::runtime_error(there + ": what answers there does not know the job's secret");
  return true;
}

// own_port: where others reach this process, which may listen only when it has a connection to go by.
Socket join(const Rendezvous& at, const std::string& endpoint, int to,
            const std::function<std::uint16_t(const Socket&)>& own_port, Deadline deadline) {
  for (;;) {
    const double left = std::chrono::duration<double>(deadline - SteadyClock::now()).count();
    look_up(at);
    Socket socket;
    try {
      socket = connect_to(endpoint, std::clamp(left, 0.0, kBetweenLooks_s));
    } catch (const std::runtime_error&) {
      if (left <= kBetweenLooks_s) throw;
      continue;
    }
    if (introduce(at, socket, to, own_port(socket), deadline)) return socket;
    if (SteadyClock::now() > deadline) throw std::runtime_error(endpoint + " closes all connections");
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
}

constexpr std::size_t kAddressMax = 64;

Table table_from(Socket& leader, int size, Deadline deadline) {
  const auto whole = [&](std::size_t n) {
    auto bytes = receive(leader, n, deadline, "rank 0");
    if (!bytes) throw std::runtime_error("rank 0 left before all were there");
    return std::move(*bytes);
  };
  std::uint32_t length = 0;
  std::uint64_t check = 0;
  from_bytes(whole(sizeof length + sizeof check), length, check);
  if (length > std::size_t(size) * (kAddressMax + 8) + 64)
    throw std::runtime_error("rank 0 sends a table that is too long");
  const std::vector<std::byte> bytes = whole(length);
  if (checksum(bytes) != check) throw std::runtime_error("rank 0's table of addresses was damaged on its way");
  Table table;
  try {
    from_bytes(bytes, table);
  } catch (const Malformed& bad) {
    throw std::runtime_error(fmt::format("rank 0's table of addresses {}", bad.what()));
  }
  if (table.addresses.size() != std::size_t(size) || table.ports.size() != std::size_t(size))
    throw std::runtime_error("rank 0 sent a table for another number of processes");
  return table;
}

int hosts_in(const std::vector<std::string>& addresses) {
  return int(std::set<std::string>(addresses.begin() + (addresses.size() > 1 ? 1 : 0), addresses.end()).size());
}

Met lead(const Rendezvous& at, Deadline deadline) {
  Met met;
  met.peers.resize(std::size_t(at.size));
  std::uint16_t port = at.port;
  const Socket listener = listen_at(at.master, port);
  Reception reception(at, listener, met.peers, 1);
  reception.await_all(deadline);
  Table& table = reception.table();
  table.addresses[0] = at.master.substr(0, kAddressMax);
  const std::vector<std::byte> bytes = to_bytes(table);
  for (Socket& peer : met.peers) {
    if (!peer.open()) continue;
    if (!peer.send(to_bytes(std::uint32_t(bytes.size()), checksum(bytes))) || !peer.send(bytes))
      throw std::runtime_error("a process left before the job began");
  }
  met.hosts = hosts_in(table.addresses);
  return met;
}

Met follow(const Rendezvous& at, Deadline deadline) {
  Met met;
  met.peers.resize(std::size_t(at.size));
  Socket listener;
  std::uint16_t port = 0;
  const auto own_port = [&](const Socket& to_leader) {  // on the interface over which it reaches rank 0
    if (!listener.open()) listener = listen_at(own_address(to_leader), port);
    return port;
  };
  met.peers[0] = join(at, fmt::format("{}:{}", at.master, at.port), 0, own_port, deadline);
  const Table table = table_from(met.peers[0], at.size, deadline);
  for (int other = 1; other < at.rank; ++other) {
    const auto place = std::size_t(other);
    const std::string endpoint = fmt::format("{}:{}", table.addresses[place], table.ports[place]);
    met.peers[place] = join(at, endpoint, other, own_port, deadline);
  }
  Reception(at, listener, met.peers, at.rank + 1).await_all(deadline);
  met.hosts = hosts_in(table.addresses);
  return met;
}

}  // namespace

Met meet(const Rendezvous& at) {
  if (at.secret.empty() && !at.insecure && !is_loopback(at.master)) {
    throw NoSecret(fmt::format(
        "{} is no loopback address, and the processes share no secret: anybody who reaches it could join", at.master));
  }
  const Deadline deadline = in(at.seconds);
  return at.rank == 0 ? lead(at, deadline) : follow(at, deadline);
}

}  // namespace seeksim::runtime
