// Steering: decides the order of an untimed world, and hears what each step touched. A step is what the loop does
// between two decisions: a host runs until it waits, a queue goes as far as it can, a message or a deadline arrives.
// Two steps whose touches do not concern each other may change places without any effect (order_search.h uses that).
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>

namespace seeksim::sim {

// What ranks share, or what others' messages reach.
enum class ObjectKind : std::uint8_t {
  none,
  host,        // of a rank: whether it lives
  park,        // of a rank: one of its waits
  signals,     // a rank's signals: revokes and errors of communicators
  answer,      // of a rank: what the control plane answered
  operations,  // of a rank: those under way
  queue,       // of a rank: how far it has come
  group,       // the place where members' operations of one number meet
  meeting,     // where hosts build a communicator
  network,     // which ranks are known to be gone
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
// write with read, write and add; read with add. What an `after` follows made it possible: there is no other order of
// these two, and what comes before the one comes before the other.
enum class Access : std::uint8_t {
  read,
  write,
  add,   // among others of which the order does not matter: a ballot, a post
  after  // goes on from there
};

struct Touch {
  Object object;
  Access how = Access::read;
};

// What ranks heard from the control plane and did there, each in its own order, without times: what an order leads to.
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

  // processes: those that can run, ascending; each keeps its number whatever the order of others is. Returns the place
  // of the next one; kEnough: this run need not go on.
  virtual std::uint32_t choose(std::span<const std::uint64_t> processes) = 0;
  // All below: of the step that runs.
  virtual void touched(Object object, Access how) = 0;
  virtual void enabled(std::uint64_t process) = 0;  // it can run, or run again, from now on
  virtual void clock_moved() = 0;                   // between two steps: all that could run has
  // What this rank heard from the control plane, or did there.
  virtual void decided(int rank, std::uint64_t what) = 0;

 protected:
  ~Steering() = default;
};

// The numbers of those that can run. Hosts and queues: the rank above bit 32.
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
