// The way from a rank to the relay of its host, which carries what ranks of a group publish to other hosts: a socket
// in the file system over which a rank says what it has written into the group's memory. The relay reads it there.
// Notes are plain values, for both ends are of one build and one machine; the relay checks them all the same.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "pytorch/core/expectation.h"

namespace seeksim::pytorch {

inline constexpr std::uint32_t kLineVersion = 1;
inline constexpr int kMaxHosts = 64;

// By which all relays know a group: drawn by its first rank.
using GroupKey = std::array<std::uint8_t, 16>;
GroupKey new_group_key();  // throws std::runtime_error where the system gives no random bytes
std::string text_of(const GroupKey& key);
// The inverse. Throws std::runtime_error.
GroupKey group_key(const std::string& text);

// Bytes of a slot that a rank has filled in a round.
struct Part {
  std::uint32_t offset = 0;
  std::uint32_t bytes = 0;
  std::int32_t to = -1;  // the place that reads them; -1: all
};

enum class NoteKind : std::uint32_t {
  enter,   // first of all; with the memory's file from the first rank of the host
  came,    // to meeting `count`: its expectation and these parts of its slot in `bank` are there
  wrote,   // chunk `count` of its messages to `place`, of so many bytes
  took,    // chunk `count` of the messages from `place`
  failed,  // the group's poison is there
  stacks,  // `place` is missing and shall write its stacks
  count_
};
struct Note {
  NoteKind kind = NoteKind::count_;
  std::int32_t place = -1;
  std::uint32_t count = 0;
  std::uint32_t bank = 0;
  std::uint32_t bytes = 0;
  std::uint32_t parts = 0;  // Part follows so often
};
// In place of a Note, once.
struct Entrance {
  NoteKind kind = NoteKind::enter;
  std::uint32_t version = kLineVersion;
  GroupKey key = {};
  std::int32_t size = 0;
  std::int32_t place = -1;
  std::array<std::int32_t, kMaxRanks> hosts = {};
};
inline constexpr std::size_t kNoteBytesMax = sizeof(Note) + sizeof(Part) * kMaxRanks;
static_assert(sizeof(Entrance) <= kNoteBytesMax);
inline constexpr std::size_t kAnswerBytesMax = 512;  // of the relay's answer to an entrance; "": the rank is in

class RelayLine {
 public:
  // path: of the relay's socket. Throws std::runtime_error with one line.
  explicit RelayLine(const std::string& path);
  ~RelayLine();
  RelayLine(const RelayLine&) = delete;
  RelayLine& operator=(const RelayLine&) = delete;

  // file: of the group's memory; -1: another rank hands it over. Throws std::runtime_error with the relay's reason.
  void enter(const Entrance& entrance, int file);
  // Throws std::runtime_error where the relay is gone.
  void say(const Note& note, std::span<const Part> parts = {});

 private:
  int socket_ = -1;
};

}  // namespace seeksim::pytorch
