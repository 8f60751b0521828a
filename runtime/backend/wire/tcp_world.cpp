#include "runtime/backend/wire/tcp_world.h"

#include <fmt/format.h>
#include <netdb.h>
#include <sys/socket.h>

#include <chrono>
#include <cstdlib>
#include <set>
#include <stdexcept>
#include <thread>

#include "runtime/backend/wire/bytes.h"

namespace seeksim::runtime {
namespace {

constexpr double kTimeToMeet_s = 60;

void nap() { std::this_thread::sleep_for(std::chrono::milliseconds(1)); }

TimeNs now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

int number(const char* name, int least, int most) {
  const std::string text = variable(name);
  char* end = nullptr;
  const long value = std::strtol(text.c_str(), &end, 10);
  if (text.empty() || *end != 0 || value < least || value > most)
    throw std::runtime_error(fmt::format("{}={}: a number from {} to {} is expected", name, text, least, most));
  return int(value);
}

// What two processes say first: who they are, and where others reach them.
struct Introduction {
  std::uint64_t magic = 0x6e72757465656b73ull;
  std::int32_t rank = -1;
  std::int32_t size = 0;
  std::uint16_t port = 0;
};
template <class A>
void fields(A& a, Introduction& i) {
  a(i.magic, i.rank, i.size, i.port);
}

void send_all(Socket& socket, std::span<const std::byte> bytes) {
  if (!socket.send(bytes)) throw std::runtime_error("a process left before the job began");
}

std::vector<std::byte> receive_all(Socket& socket, std::size_t n, TimeNs deadline) {
  std::vector<std::byte> bytes(n);
  for (std::size_t have = 0; have < n;) {
    const int more = socket.receive(std::span(bytes).subspan(have));
    if (more < 0) throw std::runtime_error("a process left before the job began");
    if (now() > deadline) throw std::runtime_error("a process says nothing");
    if (more == 0) readable(socket, 100);
    have += std::size_t(more);
  }
  return bytes;
}

Introduction introduction_from(Socket& socket, int size, TimeNs deadline) {
  Introduction from;
  from_bytes(receive_all(socket, to_bytes(Introduction{}).size(), deadline), from);
  if (from.magic != Introduction{}.magic || from.size != size || from.rank < 0 || from.rank >= size)
    throw std::runtime_error("an unknown program connected, or a process of another job");
  return from;
}

Socket accept_one(const Socket& listener, TimeNs deadline) {
  for (;;) {
    if (now() > deadline) throw std::runtime_error("not all processes have come");
    if (!readable(listener, 100)) continue;
    Socket socket = accept_from(listener);
    if (socket.open()) return socket;
  }
}

std::string address_of_peer(const Socket& socket) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  char host[NI_MAXHOST];
  if (::getpeername(socket.fd(), reinterpret_cast<sockaddr*>(&address), &length) != 0 ||
      ::getnameinfo(reinterpret_cast<sockaddr*>(&address), length, host, sizeof host, nullptr, 0, NI_NUMERICHOST) != 0)
    throw std::runtime_error("a process without an address");
  return host;
}

}  // namespace

bool TcpWorld::asked_for() { return !variable("RANK").empty() && !variable("WORLD_SIZE").empty(); }

TcpWorld::TcpWorld() {
  size_ = number("WORLD_SIZE", 1, 4096);
  rank_ = number("RANK", 0, size_ - 1);
  const std::string master = variable("MASTER_ADDR");
  if (master.empty()) throw std::runtime_error("MASTER_ADDR is not set");
  const int port = number("MASTER_PORT", 1, 65534);
  // torchrun's own store holds that port.
  const bool taken = variable("TORCHELASTIC_USE_AGENT_STORE") == "True";
  meet(master, std::uint16_t(taken ? port + 1 : port));
}

// All come to rank 0, which tells all where the others listen; then whoever has the higher rank of a pair connects.
void TcpWorld::meet(const std::string& master, std::uint16_t port) {
  const TimeNs deadline = now() + TimeNs(kTimeToMeet_s * 1e9);
  std::vector<Socket> peers(static_cast<std::size_t>(size_));
  std::vector<std::string> addresses(peers.size());
  std::vector<std::uint16_t> ports(peers.size());
  std::uint16_t own = rank_ == 0 ? port : std::uint16_t(0);
  const Socket listener = listen_at("", own);
  address_ = addresses[0] = master;
  if (rank_ == 0) {
    for (int missing = size_ - 1; missing > 0; --missing) {
      Socket socket = accept_one(listener, deadline);
      const Introduction from = introduction_from(socket, size_, deadline);
      Socket& place = peers[std::size_t(from.rank)];
      if (from.rank == 0 || place.open()) throw std::runtime_error(fmt::format("two processes are rank {}", from.rank));
      addresses[std::size_t(from.rank)] = address_of_peer(socket);
      ports[std::size_t(from.rank)] = from.port;
      place = std::move(socket);
    }
    const std::vector<std::byte> table = to_bytes(addresses, ports);
    for (Socket& peer : peers) {
      if (!peer.open()) continue;
      send_all(peer, to_bytes(std::uint32_t(table.size())));
      send_all(peer, table);
    }
  } else {
    Socket leader = connect_to(fmt::format("{}:{}", master, port), kTimeToMeet_s);
    send_all(leader, to_bytes(Introduction{Introduction{}.magic, rank_, size_, own}));
    std::uint32_t length = 0;
    from_bytes(receive_all(leader, sizeof length, deadline), length);
    from_bytes(receive_all(leader, std::min<std::uint32_t>(length, 1 << 24), deadline), addresses, ports);
    if (addresses.size() != peers.size() || ports.size() != peers.size())
      throw std::runtime_error("rank 0 told of another number of processes");
    peers[0] = std::move(leader);
    for (int other = 1; other < rank_; ++other) {
      Socket socket = connect_to(fmt::format("{}:{}", addresses[std::size_t(other)], ports[std::size_t(other)]), 20);
      send_all(socket, to_bytes(Introduction{Introduction{}.magic, rank_, size_, own}));
      peers[std::size_t(other)] = std::move(socket);
    }
    for (int other = rank_ + 1; other < size_; ++other) {
      Socket socket = accept_one(listener, deadline);
      const Introduction from = introduction_from(socket, size_, deadline);
      peers[std::size_t(from.rank)] = std::move(socket);
    }
  }
  hosts_ = int(std::set<std::string>(addresses.begin() + (size_ > 1 ? 1 : 0), addresses.end()).size());
  wire_.emplace(rank_, std::move(peers));
}

TcpWorld::~TcpWorld() {
  // What is still to be sent goes out: the last word of rank 0.
  for (int i = 0; i < 100 && wire_->poll(); ++i) {
  }
}

std::string TcpWorld::broadcast(std::string text) {
  const auto* bytes = reinterpret_cast<const std::byte*>(text.data());
  if (rank_ == 0) {
    for (int to = 1; to < size_; ++to) wire_->send_text(to, {bytes, text.size()});
    while (wire_->poll()) {
    }
    return text;
  }
  for (;;) {
    if (const auto told = wire_->text_from(0)) return {reinterpret_cast<const char*>(told->data()), told->size()};
    if (wire_->closed(0)) throw std::runtime_error("rank 0 is gone");
    if (!wire_->poll()) nap();
  }
}

std::vector<std::vector<std::byte>> TcpWorld::gather(std::vector<std::byte> mine, int count, TimeNs patience) {
  std::vector<std::vector<std::byte>> all;
  if (rank_ != 0) {
    wire_->send_text(0, mine);
    while (wire_->unsent(0) && !wire_->closed(0)) {
      if (!wire_->poll()) nap();
    }
    return all;
  }
  all.resize(std::size_t(count));
  all[0] = std::move(mine);
  std::vector<bool> here(all.size(), false);
  here[0] = true;
  TimeNs last = now();
  for (int missing = count - 1; missing > 0 && now() - last < patience;) {
    if (!wire_->poll()) nap();
    for (int from = 1; from < count; ++from) {
      if (here[std::size_t(from)]) continue;
      if (auto text = wire_->text_from(from)) {
        all[std::size_t(from)] = std::move(*text);
      } else if (!wire_->closed(from)) {
        continue;
      }
      here[std::size_t(from)] = true;
      last = now();
      --missing;
    }
  }
  return all;
}

// The others see that the connections are closed.
void TcpWorld::abort(int exit_status) { std::_Exit(exit_status); }

}  // namespace seeksim::runtime
