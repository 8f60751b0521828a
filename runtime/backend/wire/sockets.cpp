#include "runtime/backend/wire/sockets.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <thread>

namespace seeksim::runtime {
namespace {

std::runtime_error failed(const std::string& what) { return std::runtime_error(what + ": " + std::strerror(errno)); }

using Addresses = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

Addresses resolve(const std::string& host, const std::string& port, int flags) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int error = ::getaddrinfo(host.empty() ? nullptr : host.c_str(), port.c_str(), &hints, &found);
  if (error != 0) throw std::runtime_error("the address " + host + ": " + ::gai_strerror(error));
  return {found, &::freeaddrinfo};
}

void prepare(int fd) {
  const int on = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  const timeval limit{30, 0};
  ::setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
  // A host that is cut off says no goodbye. The kernel asks it now and then, and gives the connection up.
  constexpr int kProbes = 4;
  const int first_s = kUnreachable_s / 2, between_s = kUnreachable_s / 2 / kProbes;
  ::setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &first_s, sizeof first_s);
  ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &between_s, sizeof between_s);
  ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &kProbes, sizeof kProbes);
}

Socket try_to_connect(const addrinfo& at) {
  Socket socket(::socket(at.ai_family, at.ai_socktype | SOCK_CLOEXEC, at.ai_protocol));
  if (!socket.open()) return socket;
  prepare(socket.fd());  // its time to send is also connect's
  if (::connect(socket.fd(), at.ai_addr, at.ai_addrlen) != 0) socket.close();
  return socket;
}

// Not open: errno says why.
Socket try_to_listen(const addrinfo& at) {
  Socket socket(::socket(at.ai_family, at.ai_socktype | SOCK_CLOEXEC, at.ai_protocol));
  if (!socket.open()) return socket;
  const int on = 1;
  ::setsockopt(socket.fd(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (::bind(socket.fd(), at.ai_addr, at.ai_addrlen) == 0 && ::listen(socket.fd(), SOMAXCONN) == 0) return socket;
  const int why = errno;
  socket.close();
  errno = why;
  return socket;
}

std::string numbers_of(int result, const sockaddr_storage& address, socklen_t length) {
  char host[NI_MAXHOST];
  if (result != 0 || ::getnameinfo(reinterpret_cast<const sockaddr*>(&address), length, host, sizeof host, nullptr, 0,
                                   NI_NUMERICHOST) != 0)
    throw std::runtime_error("a connection without an address");
  return host;
}

bool is_loopback(const sockaddr& address) {
  if (address.sa_family == AF_INET)
    return ntohl(reinterpret_cast<const sockaddr_in&>(address).sin_addr.s_addr) >> 24 == 127;
  return address.sa_family == AF_INET6 &&
         IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6&>(address).sin6_addr);
}

}  // namespace

Socket& Socket::operator=(Socket&& other) noexcept {
  if (this != &other) {
    close();
    fd_ = other.fd_;
    other.fd_ = -1;
  }
  return *this;
}

void Socket::close() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

bool Socket::send(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    bytes = bytes.subspan(std::size_t(n));
  }
  return true;
}

int Socket::send_some(std::span<const std::byte> bytes) {
  const ssize_t n = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  if (n >= 0) return int(n);
  return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR ? 0 : -1;
}

int Socket::receive(std::span<std::byte> into) {
  const ssize_t n = ::recv(fd_, into.data(), into.size(), MSG_DONTWAIT);
  if (n > 0) return int(n);
  return n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) ? 0 : -1;
}

Socket listen_at(const std::string& address, std::uint16_t& port) {
  const Addresses found = resolve(address, std::to_string(port), AI_PASSIVE);
  Socket socket;
  for (const addrinfo* at = found.get(); at != nullptr && !socket.open(); at = at->ai_next) socket = try_to_listen(*at);
  if (!socket.open()) throw failed("listening at " + address + ':' + std::to_string(port));
  sockaddr_storage own{};
  socklen_t length = sizeof own;
  if (::getsockname(socket.fd(), reinterpret_cast<sockaddr*>(&own), &length) != 0) throw failed("the own address");
  port = ntohs(own.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6&>(own).sin6_port
                                         : reinterpret_cast<const sockaddr_in&>(own).sin_port);
  ::fcntl(socket.fd(), F_SETFL, ::fcntl(socket.fd(), F_GETFL) | O_NONBLOCK);
  return socket;
}

Socket accept_from(const Socket& listener) {
  Socket socket(::accept4(listener.fd(), nullptr, nullptr, SOCK_CLOEXEC));
  if (socket.open()) prepare(socket.fd());
  return socket;
}

void give_up_when_unreachable(Socket& socket, int seconds) {
  const unsigned limit_ms = unsigned(seconds) * 1000;
  ::setsockopt(socket.fd(), IPPROTO_TCP, TCP_USER_TIMEOUT, &limit_ms, sizeof limit_ms);
}

Socket connect_to(const std::string& endpoint, double seconds) {
  const std::size_t colon = endpoint.rfind(':');
  if (colon == std::string::npos) throw std::runtime_error("'" + endpoint + "' is no host:port");
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  for (;;) {
    const Addresses found = resolve(endpoint.substr(0, colon), endpoint.substr(colon + 1), 0);
    for (const addrinfo* at = found.get(); at != nullptr; at = at->ai_next) {
      Socket socket = try_to_connect(*at);
      if (socket.open()) return socket;
    }
    if (std::chrono::steady_clock::now() >= end) throw failed("connecting to " + endpoint);
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
}

bool readable(const Socket& socket, int timeout_ms) {
  pollfd waiting{socket.fd(), POLLIN, 0};
  return ::poll(&waiting, 1, timeout_ms) > 0;
}

std::string own_address(const Socket& socket) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  return numbers_of(::getsockname(socket.fd(), reinterpret_cast<sockaddr*>(&address), &length), address, length);
}

std::string peer_address(const Socket& socket) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  return numbers_of(::getpeername(socket.fd(), reinterpret_cast<sockaddr*>(&address), &length), address, length);
}

bool is_loopback(const std::string& address) {
  const Addresses found = resolve(address, "0", 0);
  for (const addrinfo* at = found.get(); at != nullptr; at = at->ai_next) {
    if (!is_loopback(*at->ai_addr)) return false;
  }
  return true;
}

}  // namespace seeksim::runtime
