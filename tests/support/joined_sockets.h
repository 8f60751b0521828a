// Two ranks of one process, joined by a pair of sockets.
#pragma once

#include <sys/socket.h>

#include <cerrno>
#include <system_error>
#include <utility>
#include <vector>

#include "runtime/backend/wire/sockets.h"

namespace seeksim::test {

// What the TcpWire of rank 0 and that of rank 1 are made of: a socket for each peer, none for oneself. Throws
// std::system_error.
inline std::pair<std::vector<runtime::Socket>, std::vector<runtime::Socket>> joined_sockets() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0)
    throw std::system_error(errno, std::generic_category(), "socketpair");
  std::pair<std::vector<runtime::Socket>, std::vector<runtime::Socket>> of;
  of.first.resize(2);
  of.second.resize(2);
  of.first[1] = runtime::Socket(ends[0]);
  of.second[0] = runtime::Socket(ends[1]);
  return of;
}

}  // namespace seeksim::test
