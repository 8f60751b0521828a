#include "runtime/backend/control/control_frame.h"

#include "runtime/seams/enum_names.h"

namespace seeksim::runtime {
namespace {

constexpr std::uint32_t kMagic = 0x31636b73;  // "skc1"
constexpr std::size_t kHeadBytes = 9;

}  // namespace

std::string_view name(FrameKind kind) {
  static constexpr EnumNames<FrameKind> kNames({{FrameKind::hello, "hello"},
                                                {FrameKind::ballot, "ballot"},
                                                {FrameKind::revoke, "revoke"},
                                                {FrameKind::enter, "enter"},
                                                {FrameKind::beat, "beat"},
                                                {FrameKind::ready, "ready"},
                                                {FrameKind::done, "done"},
                                                {FrameKind::welcome, "welcome"},
                                                {FrameKind::answer, "answer"},
                                                {FrameKind::revoked, "revoked"},
                                                {FrameKind::entered, "entered"}});
  return kNames.of(kind, "?");
}

std::vector<std::byte> frame_bytes(FrameKind kind, std::span<const std::byte> body) {
  std::vector<std::byte> bytes = to_bytes(kMagic, std::uint32_t(body.size()), kind);
  bytes.insert(bytes.end(), body.begin(), body.end());
  return bytes;
}

std::optional<Frame> FrameReader::next(std::size_t body_max) {
  if (buffer_.size() < kHeadBytes) return std::nullopt;
  std::uint32_t magic = 0, length = 0;
  Frame frame;
  std::uint8_t kind = 0;
  from_bytes(std::span<const std::byte>(buffer_.data(), kHeadBytes), magic, length, kind);
  if (magic != kMagic) throw Malformed("the magic number of a different protocol");
  if (kind >= std::uint8_t(FrameKind::count_)) throw Malformed("an unknown kind of frame");
  frame.kind = FrameKind(kind);
  if (length > body_max) throw Malformed("a frame of " + std::to_string(length) + " bytes");
  if (buffer_.size() < kHeadBytes + length) return std::nullopt;
  const auto begin = buffer_.begin() + kHeadBytes, end = begin + length;
  frame.body.assign(begin, end);
  buffer_.erase(buffer_.begin(), end);
  return frame;
}

}  // namespace seeksim::runtime
