// TCP, as the control plane needs it: few connections, small messages, every call with an end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace seeksim::runtime {

// A connection over which nothing is on its way is gone when the other host has not been reachable for so long.
inline constexpr int kUnreachable_s = 20;

class Socket {
 public:
  explicit Socket(int fd = -1) : fd_(fd) {}
  Socket(Socket&& other) noexcept : fd_(other.fd_) { other.fd_ = -1; }
  Socket& operator=(Socket&& other) noexcept;
  ~Socket() { close(); }

  int fd() const { return fd_; }
  bool open() const { return fd_ >= 0; }
  void close();
  // All of it; false: the other side is gone, or takes nothing for 30 seconds.
  bool send(std::span<const std::byte> bytes);
  // As much as it takes now: how many bytes, 0: nothing, -1: the other side is gone.
  int send_some(std::span<const std::byte> bytes);
  // What is there, without waiting: how many bytes, 0: nothing is there, -1: the other side is gone.
  int receive(std::span<std::byte> into);

 private:
  int fd_;
};

// At the first of the address's interfaces that this host has; an empty one: at all of them. port: where it listens.
// Throws std::runtime_error with the reason.
Socket listen_at(const std::string& address, std::uint16_t& port);
Socket accept_from(const Socket& listener);  // not open: no connection waits
// "host:port"; tries until seconds have passed. Throws std::runtime_error.
Socket connect_to(const std::string& endpoint, double seconds);
// The same while something is on its way, which otherwise takes the kernel a quarter of an hour. Only for a connection
// whose reader always takes what comes: one that takes nothing for `seconds` is gone, too.
void give_up_when_unreachable(Socket& socket, int seconds = kUnreachable_s);
// Waits until there is something to read; false: nothing came.
bool readable(const Socket& socket, int timeout_ms);

// As numbers: where this end is, and where the other one is. Throw std::runtime_error.
std::string own_address(const Socket& socket);
std::string peer_address(const Socket& socket);
// Whether the address can only mean this host: all that it stands for are loopback addresses.
bool is_loopback(const std::string& address);

}  // namespace seeksim::runtime
