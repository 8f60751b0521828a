// Steering: decides the order of an untimed world, and hears what each step touches. A step is what the loop does
// between two decisions: a host runs until it waits, a queue goes as far as it can, a message or a deadline arrives.
// Two steps whose touches are independent may change places unnoticed (order_search.h uses that).
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>

namespace seeksim::sim {

// State that ranks share, or that others' messages reach.
enum class ObjectKind : std::uint8_t {
  none,
  host,        // of a rank: whether it lives
  park,        // of a rank: one of its waits
  signals,     // of a rank: what it has been told, revokes and errors of communicators
  answer,      // of a rank: what the control plane answered
  operations,  // of a rank: those under way
  queue,       // of a rank: how far it has come
  group,       // the place where members' operations of one number meet
  meeting,     // where hosts build a communicator
  network,     // who is known to be gone
  center,      // the control plane's votes, revokes, deaths and members
  fence,       // of a rank: whether the others have declared it dead
  disk,        // one node's files, or those that all share
  count_
};
std::string_view name(ObjectKind kind);

struct Object {
  std::uint64_t id = 0;
  ObjectKind kind() const { return ObjectKind(id >> 56); }
  friend auto operator<=>(const Object&, const Object&) = default;
};
constexpr Object object(ObjectKind kind, std::uint64_t a, std::uint64_t b = 0) {
  return {std::uint64_t(kind) << 56 | (a << 36 & 0x00fffff000000000ull) | (b & 0x0000000fffffffffull)};
}

// How a step touches an object; which pairs may not change places:
// write with read, write and add; read with add. An `after` follows the step that made it possible: these two have no
// other order, and what comes before the one comes before the other.
enum class Access : std::uint8_t {
  read,
  write,
  add,   // one of several whose order does not matter: a ballot, a post
  after  // goes on from there
};

struct Touch {
  Object object;
  Access how = Access::read;
};

// The outcome of an order: what each rank heard from the control plane and did there, in its own order, without times.
class Heard {
 public:
  void clear() { by_rank_.clear(); }
  void add(int rank, std::uint64_t what);
  std::uint64_t digest() const;

 private:
  std::map<int, std::uint64_t> by_rank_;
};

class Steering {
 public:
  static constexpr std::uint32_t kEnough = ~std::uint32_t(0);

  // able: the processes that can run, ascending; the number of each does not depend on the order of others. Returns the
  // place of the next one; kEnough: this run need not go on.
  virtual std::uint32_t choose(std::span<const std::uint64_t> processes) = 0;
  // All functions below are about the step that runs.
  virtual void touched(Object object, Access how) = 0;
  virtual void enabled(std::uint64_t process) = 0;  // it can run, or run again, from now on
  virtual void clock_moved() = 0;                   // between two steps, when all that could run has run
  // What this rank heard from the control plane, or did there.
  virtual void decided(int rank, std::uint64_t what) = 0;

 protected:
  ~Steering() = default;
};

// The numbers of processes. For hosts and queues the rank is above bit 32.
enum class Arrival : std::uint8_t {
  deadline,  // of a host's wait
  sleep,     // its end
  kernel,    // the end of one that takes time, by a fault
  operation,
  to_center,  // the messages of one rank, in order
  poll_deadline,
  reply,
  revoke,
  death,
  noticed,
  silence,
  built,
  error,
  zombie,
  dies,
  fault,  // at a time
  count_
};
constexpr std::uint64_t arrival(Arrival kind, int rank, std::uint64_t number) {
  return std::uint64_t(1) << 63 | std::uint64_t(kind) << 56 | (std::uint64_t(rank + 1) & 0xfffff) << 36 |
         (number & 0x0000000fffffffffull);
}
// "rank 1's host", "the answer to rank 0, number 3".
std::string describe_process(std::uint64_t process);

}  // namespace seeksim::sim
