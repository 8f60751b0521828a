// ControlServer: the store of the control plane behind a TCP port. Runs in the supervisor (seeksim launch), or beside
// rank 0 when ranks were started without one. Strangers are refused and told of.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "runtime/backend/control_store.h"
#include "runtime/backend/sockets.h"
#include "runtime/backend/wall_clock.h"

namespace seeksim::runtime {

// Who knows it is of this run.
std::string new_token();

class ControlServer final : private ControlStore::Outbox {
 public:
  struct Options {
    int ranks = 1;
    std::string token;
    std::string address = "127.0.0.1";  // where it listens
    std::uint16_t port = 0;             // 0: a free one
    TimeNs heartbeat_timeout_ns = 0;    // 0: nobody asks
  };
  using Listener = std::function<void(int rank, const std::string& text)>;  // rank -1: of nobody

  ControlServer(const Options& options, Listener listener);
  std::uint16_t port() const { return port_; }
  // Serves for so long at most, or until something has come.
  void step(int timeout_ms);

  // Who was declared dead since no heartbeats came.
  const std::vector<int>& silent() const { return store_.silent(); }
  const std::vector<int>& died() const { return store_.died_first(); }  // whose processes went, the first one first
  std::uint64_t refused() const { return refused_; }                    // strangers, and what they sent
  int joined() const;                                                   // ranks that have said hello

 private:
  struct Connection {
    Socket socket;
    FrameReader reader;
    int rank = -1;  // -1: has not said hello
    bool only_beats = false;
    TimeNs since = 0;
  };
  void answer(int rank, const Answer& answer) override;
  void revoked(int rank, std::uint32_t epoch) override;
  void story(int rank, const std::string& text) override { listener_(rank, text); }

  bool read(Connection& connection);  // false: to be closed
  void handle(Connection& connection, const Frame& frame);
  void greet(Connection& connection, const Frame& frame);
  void send(int rank, FrameKind kind, std::span<const std::byte> body);
  void refuse(const std::string& why);
  bool overdue(const Connection& connection) const;

  Options options_;
  Listener listener_;
  WallClock clock_;
  ControlStore store_;
  std::uint16_t port_ = 0;
  Socket listening_;
  std::vector<Connection> connections_;
  std::vector<bool> here_;
  std::uint64_t refused_ = 0;
};

}  // namespace seeksim::runtime
