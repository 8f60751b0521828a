// Frames: how ranks and the store of the control plane speak over TCP. A frame is a magic number, a length, a kind and
// that many bytes (bytes.h). Whoever does not begin with a hello that carries the run's token, sends another magic, a
// longer frame than its kind may have, or bytes that are no message, is disconnected.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/backend/wire/bytes.h"
#include "runtime/seams/seams.h"

namespace seeksim::runtime {

enum class FrameKind : std::uint8_t {
  hello,    // rank -> store: token, rank, whether this connection only carries heartbeats
  ballot,   // rank -> store
  revoke,   // rank -> store
  enter,    // rank -> store: the next epoch and its members
  beat,     // rank -> store: this process runs
  ready,    // rank -> store: with beats: it has met the others of its job
  done,     // rank -> store: it leaves in order; with beats: no more will come
  welcome,  // store -> rank
  answer,   // store -> rank: how an agreement ended
  revoked,  // store -> rank
  entered,  // store -> rank: an empty text, or why not
  count_
};
std::string_view name(FrameKind kind);

inline constexpr std::size_t kTokenBytes = 32;                       // of 4 bits each
inline constexpr std::size_t kFrameBytesMax = std::size_t(4) << 20;  // an answer holds a ballot of each rank
inline constexpr std::size_t kStrangerBytesMax = 256;                // of whoever has not said hello

struct Frame {
  FrameKind kind = FrameKind::count_;
  std::vector<std::byte> body;
};

std::vector<std::byte> frame_bytes(FrameKind kind, std::span<const std::byte> body);

// Takes frames out of what has been received so far. Throws Malformed.
class FrameReader {
 public:
  void take(std::span<const std::byte> bytes) { buffer_.insert(buffer_.end(), bytes.begin(), bytes.end()); }
  // body_max: of the frames that may come now.
  std::optional<Frame> next(std::size_t body_max);

 private:
  std::vector<std::byte> buffer_;
};

// ---- what the bodies hold ------------------------------------------------------------------------------------------

struct Hello {
  std::string token;
  std::int32_t rank = -1;
  bool only_beats = false;
};

// Agreements are told apart by epoch, kind, step (votes only: recovering ranks may be at different steps) and sequence,
// and by how many of that name came before.
struct PollKey {
  std::uint32_t epoch = 0;
  OpKind kind = OpKind::vote;
  std::int64_t step = 0;
  std::uint64_t sequence = 0;
  std::uint32_t instance = 0;
  auto operator<=>(const PollKey&) const = default;
};

struct Answer {
  enum class Kind : std::uint8_t { decided, cut_short, fenced, count_ } kind = Kind::count_;
  Agreement agreement;  // decided
};

template <class A>
void fields(A& a, Hello& h) {
  a(h.token, h.rank, h.only_beats);
}
template <class A>
void fields(A& a, PollKey& k) {
  a(k.epoch, k.kind, k.step, k.sequence, k.instance);
}
template <class A>
void fields(A& a, CommProgress& p) {
  a(p.id, p.last_joined);
}
template <class A>
void fields(A& a, CheckpointBallot& c) {
  a(c.step, c.failed, c.complete, c.bytes, c.digest);
}
template <class A>
void fields(A& a, Ballot& b) {
  a(b.ok, b.error, b.last_committed, b.last_joined, b.stuck_in, b.stuck_sequence, b.stuck_kind, b.stuck_meaning,
    b.missing_peer, b.missing_is_sender, b.joined_ns, b.detected_ns, b.progress, b.checkpoint, b.busy_ns,
    b.leaves_at_ns, b.words, b.hand_over);
}
template <class A>
void fields(A& a, Agreement& g) {
  a(g.epoch, g.members, g.dead, g.ballots, g.silent, g.joiners);
}
template <class A>
void fields(A& a, Answer& answer) {
  a(answer.kind, answer.agreement);
}

}  // namespace seeksim::runtime
