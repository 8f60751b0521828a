#include "runtime/backend/control/control_client.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <limits>
#include <numeric>
#include <stdexcept>

#include "runtime/backend/wire/process_world.h"

namespace seeksim::runtime {
namespace {

constexpr double kTimeToConnect_s = 20;
constexpr int kTimeToWelcome_ms = 20'000;
constexpr std::size_t kRemembered = 64;
// Between messages, how many rounds of the loop go by without a look at the socket.
constexpr unsigned kRoundsUnseen = 64;

}  // namespace

ControlClient::ControlClient(ProgressLoop& loop, Signals& signals, const Options& options)
    : loop_(loop),
      signals_(signals),
      options_(options),
      socket_(connect_to(options.endpoint, kTimeToConnect_s)),
      members_(std::size_t(options.ranks)),
      exceptions_(std::uncaught_exceptions()) {
  std::iota(members_.begin(), members_.end(), 0);
  give_up_when_unreachable(socket_);
  socket_.send(frame_bytes(FrameKind::hello, to_bytes(Hello{options.token, options.rank, false})));
  std::array<std::byte, 256> bytes;
  const int n = readable(socket_, kTimeToWelcome_ms) ? socket_.receive(bytes) : -1;
  if (n > 0) reader_.take({bytes.data(), std::size_t(n)});
  const std::optional<Frame> welcome = reader_.next(kFrameBytesMax);
  if (!welcome || welcome->kind != FrameKind::welcome)
    throw PeerGone("the control plane at " + options.endpoint + " does not want this rank");
  while (const std::optional<Frame> frame = reader_.next(kFrameBytesMax)) handle(*frame);  // that came along with it
  if (options.heartbeat_ns > 0)
    heart_.emplace(
        Heart::Options{options.endpoint, options.token, options.rank, options.heartbeat_ns, Heart::WhenLost::stop});
  loop_.add(*this);
}

ControlClient::~ControlClient() {
  loop_.remove(*this);
  if (std::uncaught_exceptions() == exceptions_ && !lost_) socket_.send(frame_bytes(FrameKind::done, {}));
}

// ---- what comes ----------------------------------------------------------------------------------------------------

bool ControlClient::poll() {
  if (lost_ || (!waiting_ && ++rounds_ % kRoundsUnseen != 0)) return false;
  std::array<std::byte, 1 << 14> bytes;
  const int n = socket_.receive(bytes);
  if (n == 0) return false;
  try {
    if (n < 0) return lose("does not answer any more");
    reader_.take({bytes.data(), std::size_t(n)});
    while (const std::optional<Frame> frame = reader_.next(kFrameBytesMax)) handle(*frame);
  } catch (const Malformed& bad) {
    return lose(fmt::format("sent {}", bad.what()));
  }
  return true;
}

bool ControlClient::lose(const std::string& why) {
  lost_ = true;
  why_lost_ = why;
  signals_.revoked = std::numeric_limits<std::int64_t>::max();  // no rank can go on
  socket_.close();
  return true;
}

void ControlClient::handle(const Frame& frame) {
  if (frame.kind == FrameKind::answer) {
    from_bytes(frame.body, answer_.emplace());
    signals_.fenced |= answer_->kind == Answer::Kind::fenced;
  } else if (frame.kind == FrameKind::revoked) {
    std::uint32_t epoch = 0;
    from_bytes(frame.body, epoch);
    signals_.revoked = std::max(signals_.revoked, std::int64_t(epoch));
  } else if (frame.kind == FrameKind::entered) {
    from_bytes(frame.body, entered_.emplace());
  } else {
    throw Malformed("no message for a rank");
  }
}

void ControlClient::check_not_lost(const Op& op) const {
  if (lost_)
    throw SeamError(ErrorKind::no_progress, op,
                    fmt::format("the control plane at {} {}; the job cannot continue", options_.endpoint, why_lost_));
}

void ControlClient::send(const Op& op, FrameKind kind, std::span<const std::byte> body) {
  if (!lost_ && !socket_.send(frame_bytes(kind, body))) lost_ = true;
  check_not_lost(op);
}

// ---- what a rank asks ----------------------------------------------------------------------------------------------

void ControlClient::revoke(std::uint32_t epoch, const Op& op, ErrorKind why) {
  if (signals_.fenced || revoked(epoch)) return;
  signals_.revoked = std::int64_t(epoch);
  send(op, FrameKind::revoke, to_bytes(epoch, fmt::format("{} in {}", name(why), describe(op))));
}

Agreement ControlClient::agree(const Op& op, std::uint32_t epoch, const Ballot& ballot, TimeNs deadline) {
  if (signals_.fenced) throw SeamError(ErrorKind::fenced, op, "the others have declared this rank dead");
  PollKey key{epoch, op.kind, op.kind != OpKind::agree ? op.step : 0, op.sequence, 0};
  key.instance = calls_[{key.epoch, std::uint8_t(key.kind), key.step, key.sequence}]++;
  if (calls_.size() > kRemembered) calls_.erase(calls_.begin());
  answer_.reset();
  const TimeNs timeout_ns = deadline == kForever ? kForever : std::max<TimeNs>(deadline - loop_.now(), 0);
  send(op, FrameKind::ballot, to_bytes(key, ballot, timeout_ns));
  // The store alone decides, even when this rank knows of a revoke or is past the deadline. A decision of its own might
  // differ from the answer that the others get.
  waiting_ = true;
  loop_.until(kForever, [this] { return answer_.has_value() || lost_; });
  waiting_ = false;
  check_not_lost(op);
  switch (answer_->kind) {
    case Answer::Kind::fenced:
      throw SeamError(ErrorKind::fenced, op, "the others have declared this rank dead");
    case Answer::Kind::cut_short:
      throw SeamError(ErrorKind::revoked, op, "the vote was cut short by a revoke");
    default:
      return std::move(answer_->agreement);
  }
}

void ControlClient::enter_epoch(std::uint32_t epoch, std::span<const int> members) {
  Op op;
  op.kind = OpKind::agree;
  op.rank = options_.rank;
  op.epoch = epoch;
  if (signals_.fenced) throw SeamError(ErrorKind::fenced, op, "the others have declared this rank dead");
  entered_.reset();
  const std::vector<int> list(members.begin(), members.end());
  send(op, FrameKind::enter, to_bytes(epoch, list));
  waiting_ = true;
  loop_.until(kForever, [this] { return entered_.has_value() || lost_; });
  waiting_ = false;
  check_not_lost(op);
  if (!entered_->empty()) throw SeamError(ErrorKind::mismatch, op, *entered_);
  epoch_ = epoch;
  members_ = list;
  std::sort(members_.begin(), members_.end());
}

}  // namespace seeksim::runtime
