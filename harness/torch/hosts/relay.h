// The relay of a host: carries what ranks of this host publish to other hosts, and back. It is a thread of the
// supervising `seeksim torch run`, not of a rank, so that a rank which is killed or stopped takes nobody else's
// messages with it. Ranks reach it over a socket in a folder of this user alone; the relays have met before
// (runtime/backend/wire/rendezvous.h).
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "harness/torch/hosts/host_files.h"
#include "harness/torch/hosts/relay_plan.h"
#include "runtime/backend/wire/tcp_world.h"

namespace seeksim::harness::torch {

class Relay {
 public:
  // met: a connection to each other host; not open for this one. Throws std::runtime_error.
  Relay(RelayPlan plan, std::unique_ptr<runtime::TcpWire> wire);
  ~Relay();
  Relay(const Relay&) = delete;
  Relay& operator=(const Relay&) = delete;

  // The socket's path, for plan.json.
  const std::string& path() const;

  // The job of this host has failed: the others' shall not wait for it.
  void job_failed(const std::string& text);
  // What another host's command said of its job, with the host's name; empty: nothing.
  std::string failed_elsewhere() const;

  // On the first host: waits until each other host has given all, or is lost, or give_up() says so. By host; its own
  // place is empty.
  std::vector<HostGave> collect(const std::function<bool()>& give_up);
  // On the first host: the end, for all others.
  void tell_verdict(const std::string& verdict);
  // On another host: sends these files of a folder under these names, and a summary, to the first host; waits for the
  // verdict. Nothing: the first host is lost, or give_up() says so.
  std::optional<std::string> give(std::vector<HostFile> files, const std::string& summary,
                                  const std::function<bool()>& give_up);
  // Why the connection to a host was closed; empty: it is open.
  std::string why_lost(int host) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace seeksim::harness::torch
