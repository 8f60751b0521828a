// What a transport of messages knows of one operation, and what stands before every message between ranks. All
// processes run one program on one kind of machine, so it travels as it lies in memory; its size and magic are looked
// at by the receiver.
#pragma once

#include <span>
#include <string_view>

#include "runtime/backend/messages/message_transport.h"

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
  std::uint64_t run = 0;      // whose message it is: processes may run one scenario after the other
  std::uint64_t check = 0;    // a hash of what was sent, for a message that a rule damages on its way; 0: not looked at
  // So much may follow in the same message.
  static constexpr std::size_t kRoom = Wire::kHeadBytesMax - 80;
};

// One piece after the other of a pair: the n-th that is sent meets the n-th that is awaited.
struct MessageTransport::Exchange final : Activity {
  enum class Fate : std::uint8_t { open, on_the_wire, over };
  struct Part {
    Piece piece;
    std::uint32_t number = 0;  // among those of its peer and direction
    std::uint64_t check = 0;   // the hash that a message's bytes on the wire must have; 0: not checked
    Fate fate = Fate::open;
  };
  void start() override { owner->start(*this); }

  MessageTransport* owner = nullptr;
  Queue* queue = nullptr;
  std::uint32_t comm = 0;  // place in comms_
  Op op;
  std::uint64_t record = 0;
  std::vector<Part> parts;
  std::size_t unfinished = 0;
  std::size_t on_the_wire = 0;
  bool started = false;
  bool given_up = false;
};

struct MessageTransport::Early {
  int from = -1;
  Head head;
  std::vector<std::byte> payload;  // that travelled with the head
  Wire::Ticket ticket = 0;

  std::size_t memory() const { return sizeof *this + payload.size(); }
};

// A hash of a text (FNV-1a): only ever compared with one of the same.
inline std::uint64_t hash_of(std::string_view text) {
  std::uint64_t h = 0xcbf29ce484222325ull;
  for (const char c : text) h = (h ^ std::uint8_t(c)) * 0x100000001b3ull;
  return h;
}

// A message that goes out later.
struct MessageTransport::HeldBack {
  TimeNs at = 0;
  int to = -1;
  Head head;
  std::vector<std::byte> payload;
};

inline std::span<std::byte> bytes_of(const Piece& piece) {
  return {piece.buffer->data + piece.lo, piece.hi - piece.lo};
}

}  // namespace seeksim::runtime
