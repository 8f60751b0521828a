// The memory that the ranks of one group share: what each believes the current collective to be, slots through which
// data goes, mailboxes for messages between two. It has no name in the file system (memfd): when the last process that
// maps it is gone, however it ended, so is the memory. Its size cannot change while it is mapped. A group on several
// hosts has such a memory on each: its host's relay writes there what ranks of other hosts have published.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

#include "pytorch/core/expectation.h"

namespace seeksim::pytorch {

inline constexpr std::size_t kSlotBytes = std::size_t(1) << 20;   // a rank's share of a round
inline constexpr std::size_t kChunkBytes = std::size_t(1) << 16;  // a part of a message between two ranks
inline constexpr std::uint32_t kChunks = 4;                       // parts in flight
inline constexpr int kBanks = 2;                                  // of slots: one fills while the other is read
inline constexpr std::size_t kPoisonText = 4096;

static_assert(std::atomic<std::uint32_t>::is_always_lock_free && std::atomic<std::uint64_t>::is_always_lock_free);

// A word on which processes wait (futex), and how many do.
struct alignas(64) Bell {
  std::atomic<std::uint32_t> count{0};
  std::atomic<std::uint32_t> waiters{0};

  // Sets the word and wakes all that wait for it.
  void ring(std::uint32_t count_now);
  // Wakes all, so that they look around.
  void wake() const;
  // Waits until the word is no longer `seen`, at most `ms`, or until someone calls wake().
  void wait(std::uint32_t seen, int ms);
};

// Of a rank on another host, as the relay knows it.
enum class Far : std::uint32_t {
  there,
  ended,        // its process is gone
  host_gone,    // the relay of its host has closed the connection
  unreachable,  // nothing has come from its host for so long that the connection was given up
  count_
};

struct alignas(128) RankState {
  Bell meetings;                         // how many this rank has come to
  std::atomic<std::uint64_t> joined{0};  // sequence numbers
  std::atomic<std::uint64_t> finished{0};
  std::atomic<std::uint64_t> entered{0};  // where another backend carries: whose call has come back
  std::atomic<std::int64_t> pid{0};       // 0 of a rank on another host
  std::atomic<Far> far{Far::there};
  std::atomic<std::int64_t> heard_ns{0};  // monotonic_ns() when something last came from its host; 0: it is this one
  std::atomic<std::uint32_t> shows_stacks{0};  // it writes its Python stacks on SIGUSR2
  Expectation expected[kBanks];
};

struct ChunkHead {
  std::uint64_t message = 0;  // n-th between these two, from 1
  std::uint64_t bytes = 0;    // of the whole message
  std::int32_t dtype = 0;
  std::int32_t tag = 0;
};
struct alignas(128) Box {
  Bell written, taken;  // chunks
  ChunkHead head[kChunks];
  char data[kChunks][kChunkBytes];
};

// The first failure of a group, for all: whoever waits learns of it at once.
struct Poison {
  std::atomic<std::uint32_t> state{0};  // 0 none, 1 being written, 2 there
  std::uint32_t culprits = 0;
  std::int32_t culprit[kMaxRanks] = {};  // places in the group
  std::uint8_t blame[kMaxRanks] = {};
  char text[kPoisonText] = {};
};

class Segment {
 public:
  // New memory for so many ranks. Throws std::system_error.
  static Segment create(int ranks);
  // Maps the memory of which address() was given. Throws std::runtime_error with one line.
  static Segment open(const std::string& address, int ranks);
  // Maps the memory behind a file descriptor, which it closes. Throws as open().
  static Segment of_file(int file, int ranks);
  Segment(Segment&& other) noexcept;
  Segment& operator=(Segment&&) = delete;
  ~Segment();

  // By which other processes of this user and machine find it until close_address().
  std::string address() const;
  void close_address();
  int file() const { return file_; }  // until close_address()

  int ranks() const { return ranks_; }
  Poison& poison() const;
  RankState& rank(int place) const;
  char* slot(int bank, int place) const;  // kSlotBytes
  char* result(int bank) const;           // kSlotBytes: of a reduction that the ranks share
  Box& box(int from, int to) const;

 private:
  Segment(int ranks, int file, std::uint64_t token);
  static Segment mapped(int file, int ranks, const std::string& what);
  void map();

  int ranks_ = 0;
  int file_ = -1;
  std::uint64_t token_ = 0;
  char* base_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace seeksim::pytorch
