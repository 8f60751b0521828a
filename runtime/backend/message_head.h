// What stands before every message between ranks. All processes run one program on one kind of machine, so it travels
// as it lies in memory; its size and magic are looked at by the receiver.
#pragma once

#include "runtime/backend/message_transport.h"

namespace seeksim::runtime {

struct MessageTransport::Head {
  static constexpr std::uint32_t kMagic = 0x736b6d31;  // "skm1"
  enum : std::uint8_t { kPiece, kJoin, kJoined };
  std::uint32_t magic = kMagic;
  std::uint8_t kind = kPiece;
  OpKind op = OpKind::count_;
  Axis axis = Axis::count_;
  ElementType type = ElementType::bytes;
  std::uint64_t comm = 0;
  std::uint32_t epoch = 0;
  std::uint32_t number = 0;  // among the pieces from one rank to the other
  std::uint64_t sequence = 0;
  std::int64_t step = -1;
  std::int32_t micro_batch = -1;
  std::uint32_t refused = 0;  // joined: the lists of members differ
  std::uint64_t tensor = 0;   // a hash of its name
  std::uint64_t bytes = 0;    // of the piece
  // So much may follow in the same message.
  static constexpr std::size_t kRoom = Wire::kHeadBytesMax - 72;
};

}  // namespace seeksim::runtime
