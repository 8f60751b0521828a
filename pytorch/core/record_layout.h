// How a record lies in its file: a head, then entries of one size, each with the number of its kind in front. Whole
// values are stored as this machine has them: records are read where they were written.
#pragma once

#include <cstddef>
#include <type_traits>

#include "pytorch/core/record.h"

namespace seeksim::pytorch {

inline constexpr char kMagic[8] = {'S', 'E', 'E', 'K', 'T', 'R', 'C', '\n'};

struct GroupSlot {
  std::int32_t group = -1;
  std::uint32_t op = 0;
  std::uint64_t joined = 0;
  std::uint64_t finished = 0;
  std::int64_t since_ns = 0;
};

struct Head {
  char magic[8];
  std::uint32_t version;
  std::uint32_t head_bytes;
  std::uint32_t entry_bytes;
  std::int32_t rank;
  std::int32_t world;
  std::int32_t attempt;
  std::int64_t pid;
  std::int64_t started_ns;
  std::int64_t started_unix_ns;
  char torch[64];    // closed by a zero
  char backend[16];  // closed by a zero
  std::uint64_t entries;
  std::uint64_t left_out;
  std::int64_t step;
  std::uint32_t micro_batch;
  std::uint32_t phase;
  std::uint32_t ended;
  std::uint32_t groups;  // slots in use
  GroupSlot slots[kGroupsWatched];
};
static_assert(sizeof(Head) <= kHeadBytes && std::is_trivially_copyable_v<Head>);

inline constexpr std::size_t kPayloadBytes = kEntryBytes - 8;

struct Entry {
  EntryKind kind = EntryKind::none;
  std::uint8_t unused[7] = {};
  unsigned char payload[kPayloadBytes] = {};
};
static_assert(sizeof(Entry) == kEntryBytes);

// A text fills as many entries in a row as it needs; it is known once the last one is there.
inline constexpr std::size_t kTextPart = kPayloadBytes - 8;
struct TextPart {
  std::uint32_t bytes = 0;   // of the whole text
  std::uint32_t offset = 0;  // of this part
  char text[kTextPart] = {};
};

// Which kind of entry a value is. The sizes are the format: another size is another version.
template <class T>
inline constexpr EntryKind kKindOf = EntryKind::none;
#define SEEKSIM_ENTRY(type, kind, size)                                      \
  template <>                                                                \
  inline constexpr EntryKind kKindOf<type> = EntryKind::kind;                \
  static_assert(std::is_trivially_copyable_v<type> && sizeof(type) == size); \
  static_assert(sizeof(type) <= kPayloadBytes);
SEEKSIM_ENTRY(TextPart, text, 248)
SEEKSIM_ENTRY(GroupEntry, group, 12)
SEEKSIM_ENTRY(CallEntry, call, 144)
SEEKSIM_ENTRY(StepEntry, step, 24)
SEEKSIM_ENTRY(LossEntry, loss, 32)
SEEKSIM_ENTRY(TensorEntry, tensor, 64)
SEEKSIM_ENTRY(FaultEntry, fault, 40)
SEEKSIM_ENTRY(VerdictEntry, verdict, 56)
SEEKSIM_ENTRY(NoteEntry, note, 4)
SEEKSIM_ENTRY(SightEntry, sight, 24)
SEEKSIM_ENTRY(PhaseEntry, phase, 24)
#undef SEEKSIM_ENTRY

}  // namespace seeksim::pytorch
