// How processes that were started by torchrun, or by anything that sets its variables, find each other over TCP: all
// connect to rank 0, which sends each the addresses of the others, and then every pair connects.
//
// No process on the network is believed. The accepting side draws a number. With it the connecting side proves that it
// knows the job's secret, without sending it; then the accepting side proves the same. A connection that says something
// else, or nothing for five seconds, is dropped, and the meeting goes on. Connections are read side by side, a hundred
// bytes each. Without a secret the proof is empty, which is allowed on one host's loopback only.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "runtime/backend/wire/sockets.h"

namespace seeksim::runtime {

// The meeting is open to a network, and there is no secret to keep strangers out.
struct NoSecret : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct Rendezvous {
  int rank = 0;
  int size = 1;
  std::string master;           // where rank 0 listens, and nowhere else: a name or an address
  std::uint16_t port = 0;       // there
  std::string secret;           // empty: none
  bool insecure = false;        // no secret is needed; any process may connect
  double seconds = 60;          // until all have to be there
  double stranger_seconds = 5;  // for a connection to say who it is
  bool (*give_up)() = nullptr;  // looked at while it waits: it ends with an error once this says so
};

struct Met {
  std::vector<Socket> peers;  // by rank; not open for the own one
  int hosts = 1;              // on which the processes run, by their addresses
};

// Throws NoSecret, and std::runtime_error with the reason where not all meet in time.
Met meet(const Rendezvous& at);

}  // namespace seeksim::runtime
