// ControlClient: a rank's side of the control plane. What the store sends is read by the progress loop; heartbeats go
// over a connection of their own (heart.h).
#pragma once

#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "runtime/backend/control/control_frame.h"
#include "runtime/backend/control/heart.h"
#include "runtime/backend/machine/progress.h"
#include "runtime/backend/wire/sockets.h"

namespace seeksim::runtime {

class ControlClient final : public ControlPlane, public Poller {
 public:
  struct Options {
    std::string endpoint;  // "host:port" of the store
    std::string token;
    int rank = 0;
    int ranks = 1;
    TimeNs heartbeat_ns = 0;  // 0: none, or the process has a heart already
  };
  // Throws std::runtime_error when the store does not answer or does not want this rank.
  ControlClient(ProgressLoop& loop, Signals& signals, const Options& options);
  ~ControlClient() override;  // says that it leaves in order, unless an exception ends this rank

  std::uint32_t epoch() const override { return epoch_; }
  std::vector<int> members() const override { return members_; }
  void revoke(std::uint32_t epoch, const Op& op, ErrorKind why) override;
  bool revoked(std::uint32_t epoch) const override { return signals_.revoked >= std::int64_t(epoch); }
  Agreement agree(const Op& op, std::uint32_t epoch, const Ballot& ballot, TimeNs deadline) override;
  void enter_epoch(std::uint32_t epoch, std::span<const int> members) override;

  bool poll() override;

 private:
  void send(const Op& op, FrameKind kind, std::span<const std::byte> body);
  void handle(const Frame& frame);
  bool lose(const std::string& why);
  void check_not_lost(const Op& op) const;

  ProgressLoop& loop_;
  Signals& signals_;
  Options options_;
  Socket socket_;
  FrameReader reader_;
  bool lost_ = false;  // the store is gone
  std::string why_lost_ = "does not answer any more";
  bool waiting_ = false;  // for an answer: look at the socket in every round
  unsigned rounds_ = 0;
  std::uint32_t epoch_ = 0;
  std::vector<int> members_;
  std::optional<Answer> answer_;
  std::optional<std::string> entered_;
  std::map<std::tuple<std::uint32_t, std::uint8_t, std::int64_t, std::uint64_t>, std::uint32_t> calls_;
  int exceptions_ = 0;
  std::optional<Heart> heart_;
};

}  // namespace seeksim::runtime
