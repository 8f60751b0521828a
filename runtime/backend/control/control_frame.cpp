#include "runtime/backend/control/control_frame.h"

#include <fmt/format.h>

#include "runtime/backend/wire/checksum.h"
#include "runtime/seams/enum_names.h"

namespace seeksim::runtime {
std::uint64_t FrameHead::right_check() const { return checksum(to_bytes(magic, length, kind, body_check)); }

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
  FrameHead head;
  head.length = std::uint32_t(body.size());
  head.kind = std::uint8_t(kind);
  head.body_check = checksum(body);
  head.own_check = head.right_check();
  std::vector<std::byte> bytes = to_bytes(head);
  bytes.insert(bytes.end(), body.begin(), body.end());
  return bytes;
}

std::optional<Frame> FrameReader::next(std::size_t body_max) {
  static const std::size_t head_bytes = to_bytes(FrameHead{}).size();
  FrameHead head;
  if (buffer_.size() >= sizeof head.magic) {
    from_bytes(std::span<const std::byte>(buffer_.data(), sizeof head.magic), head.magic);
    if (head.magic != FrameHead::kMagic) throw Malformed("the magic number of a different protocol");
  }
  if (buffer_.size() < head_bytes) return std::nullopt;
  from_bytes(std::span<const std::byte>(buffer_.data(), head_bytes), head);
  if (head.own_check != head.right_check()) throw Malformed("the head of a frame that was damaged on its way");
  if (head.kind >= std::uint8_t(FrameKind::count_)) throw Malformed("an unknown kind of frame");
  if (head.length > body_max) throw Malformed("a frame of " + std::to_string(head.length) + " bytes");
  if (buffer_.size() < head_bytes + head.length) return std::nullopt;
  Frame frame;
  frame.kind = FrameKind(head.kind);
  const auto begin = buffer_.begin() + std::ptrdiff_t(head_bytes), end = begin + std::ptrdiff_t(head.length);
  frame.body.assign(begin, end);
  if (checksum(frame.body) != head.body_check)
    throw Malformed(fmt::format("a frame that was damaged on its way ({})", name(frame.kind)));
  buffer_.erase(buffer_.begin(), end);
  return frame;
}

}  // namespace seeksim::runtime
