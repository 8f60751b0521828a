// Memory that the members of one of the stand-in's communicators share: a ring of bytes for each ordered pair, a bell
// for each member, and what they exchange while they connect, split and end.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

namespace seeksim::standin {

inline constexpr int kMostMembers = 16;
inline constexpr std::size_t kRingBytes = std::size_t(32) << 10;

// One writer, one reader; both are at most one thread at a time.
struct Ring {
  alignas(64) std::atomic<std::uint64_t> written;
  alignas(64) std::atomic<std::uint64_t> read;
  std::atomic<std::uint32_t> sender_there, receiver_there;  // their first group with each other has come
  std::byte bytes[kRingBytes];

  std::size_t put(const std::byte* from, std::size_t most);
  std::size_t get(std::byte* to, std::size_t most);
};

struct SplitAnswer {
  std::atomic<std::uint32_t> generation;  // 0: none yet
  std::int32_t color, key;
};

struct alignas(64) Member {
  std::atomic<std::uint32_t> bell;
  std::atomic<std::int32_t> process, device;
  std::atomic<std::uint32_t> finalized;
  SplitAnswer answers[2];  // of the last split and the one before
};

// It begins all zero; the first member that comes makes it.
struct Shared {
  std::atomic<std::uint32_t> arrived;
  Member members[kMostMembers];
};

class Segment {
 public:
  Segment(std::string name, int members);
  ~Segment();
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;

  Shared& shared() const { return *static_cast<Shared*>(memory_); }
  Member& member(int rank) const { return shared().members[rank]; }
  Ring& ring(int from, int to) const;
  void remove();  // the name; processes that have it open keep it

  void ring_bell(int rank) const;
  void ring_all() const;
  std::uint32_t hear(int rank) const { return member(rank).bell; }
  // Until the bell has rung since `heard`, or a while has passed.
  void nap(int rank, std::uint32_t heard) const;

 private:
  const std::string name_;
  const int members_;
  std::size_t bytes_;
  void* memory_ = nullptr;
};

// Ended, or about to be.
bool is_dead(std::int32_t process);

}  // namespace seeksim::standin
