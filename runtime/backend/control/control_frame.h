// Frames: how ranks and the store of the control plane speak over TCP. A frame is a magic number, a length, a kind,
// checksums, and that many bytes (bytes.h). The store closes a connection that does not begin with a hello with the
// run's token, or that sends another magic number, a frame longer than its kind may be, or bytes that are no message.
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
inline constexpr std::size_t kStrangerBytesMax = 256;                // before a connection has said hello

struct Frame {
  FrameKind kind = FrameKind::count_;
  std::vector<std::byte> body;
};

struct FrameHead {
  static constexpr std::uint32_t kMagic = 0x32636b73;  // "skc2"
  std::uint32_t magic = kMagic;
  std::uint32_t length = 0;  // of the body
  std::uint8_t kind = 0;
  std::uint64_t body_check = 0;
  std::uint64_t own_check = 0;

  std::uint64_t right_check() const;  // what own_check has to be
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

// Epoch, kind, step (votes only: recovering ranks may be at different steps) and sequence identify an agreement;
// instance counts earlier agreements with the same four.
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

}  // namespace seeksim::runtime
