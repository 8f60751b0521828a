// How the commands of several hosts find each other, before their jobs begin.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/backend/wire/tcp_world.h"

namespace seeksim::harness::torch {

// What a user says of the hosts; what is missing is looked for in the launcher's own words.
struct HostsAsked {
  std::optional<int> count;  // --nnodes
  std::optional<int> host;   // --node-rank
  std::string endpoint;      // --rdzv, "host:port"
  bool insecure = false;     // --insecure
};

struct HostsPlan {
  int count = 1;  // 1: nothing of this is needed
  int host = 0;
  std::string master;      // the first host: a name or an address
  std::uint16_t port = 0;  // there, of the script's own rendezvous; the relays meet at the next one
  bool insecure = false;
};

// From the options, and from the words of torchrun, accelerate launch or deepspeed before the script: --nnodes,
// --node-rank, --rdzv-endpoint, --master-addr, --master-port and what others call them. Throws BadInput.
HostsPlan hosts_plan(const HostsAsked& asked, const std::vector<std::string>& command);

struct MetHosts {
  std::vector<std::string> names;
  std::unique_ptr<runtime::TcpWire> wire;
};
// Waits for all. task: a text that has to be the same on all hosts, such as the scenario. Throws BadInput where they do
// not all come, do not share a secret, or have another task.
MetHosts meet_hosts(const HostsPlan& plan, const std::string& task);

}  // namespace seeksim::harness::torch
