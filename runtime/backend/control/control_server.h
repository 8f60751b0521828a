// ControlServer: the store of the control plane behind a TCP port. Runs in the supervisor (seeksim launch), or beside
// rank 0 when ranks were started without one. It refuses strangers and reports them.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "runtime/backend/control/control_store.h"
#include "runtime/backend/machine/wall_clock.h"
#include "runtime/backend/wire/sockets.h"

namespace seeksim::runtime {

// A random token: a process that knows it belongs to this run.
std::string new_token();

class ControlServer final : private ControlStore::Outbox {
 public:
  struct Options {
    int ranks = 1;
    std::string token;
    std::string address = "127.0.0.1";  // where it listens
    std::uint16_t port = 0;             // 0: a free one
    TimeNs heartbeat_timeout_ns = 0;    // 0: silence is not checked
  };
  using Listener = std::function<void(int rank, const std::string& text)>;  // rank -1: not about a rank

  ControlServer(const Options& options, Listener listener);
  std::uint16_t port() const { return port_; }
  // Serves for so long at most, or until something has come.
  void step(int timeout_ms);

  // Processes whose heartbeats have stopped, and processes that went without a goodbye; the first one first. Processes
  // that do not train yet, or not any more, count too.
  const std::vector<int>& silent() const { return silent_; }
  const std::vector<int>& gone() const { return gone_; }
  int ready() const { return ready_; }                // processes that have met the others of their job
  std::uint64_t refused() const { return refused_; }  // strangers, and what they sent

 private:
  struct Connection {
    Socket socket;
    FrameReader reader;
    int rank = -1;  // -1: has not said hello
    bool only_beats = false;
    bool left = false;  // in order
    TimeNs since = 0;   // its last beat, or when it came
  };
  void answer(int rank, const Answer& answer) override;
  void revoked(int rank, std::uint32_t epoch) override;
  void story(int rank, const std::string& text) override { listener_(rank, text); }

  bool read(Connection& connection);  // false: to be closed
  void handle(Connection& connection, const Frame& frame);
  void handle_beat(Connection& connection, const Frame& frame);
  void greet(Connection& connection, const Frame& frame);
  void send(int rank, FrameKind kind, std::span<const std::byte> body);
  void refuse(const std::string& why);
  bool overdue(const Connection& connection) const;
  void look_for_silence();

  Options options_;
  Listener listener_;
  WallClock clock_;
  ControlStore store_;
  std::uint16_t port_ = 0;
  Socket listening_;
  std::vector<Connection> connections_;
  std::vector<bool> here_;  // ranks that have said hello
  std::vector<int> silent_, gone_;
  int ready_ = 0;
  std::uint64_t refused_ = 0;
};

}  // namespace seeksim::runtime
