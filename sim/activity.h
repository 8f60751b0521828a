// SimActivity: an operation of a communicator as it stands in a queue, from enqueue to end. SharedComm: what the
// members of a communicator share, that is, the places where their operations meet.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <vector>

#include "kernels/tree.h"
#include "runtime/seams/recorder.h"
#include "runtime/seams/seams.h"
#include "sim/timers.h"

namespace seeksim::sim {

struct Core;
class SimTransport;
class SimActivity;

struct SharedComm;

// Operations of different members with the same sequence number.
struct Group final : TimerTarget {
  SharedComm* shared = nullptr;
  std::uint64_t sequence = 0;
  std::uint32_t posted = 0;      // members whose operation is here: not matched in full, or summed and not over
  std::vector<SimActivity*> at;  // by position
  runtime::Op first;             // as the first member brought it; the others are compared with it
  bool has_first = false;

  // In a native sum, by position: what a member brings and where it wants the result. Gathered as the members come, one
  // after another in memory, so that the last one need not visit them all.
  struct Share {
    kernels::TreePart first;
    const std::vector<kernels::TreePart>* rest;
    float* out;
  };
  std::vector<Share> shares;
  bool summed = false;
  bool mismatched = false;  // two members have the error; all others hang, as on NCCL

  // After a native sum was computed, the members of a node complete together, node by node.
  struct Completion {
    TimeNs when;
    int node;
  };
  std::vector<Completion> completions;  // the latest first
  Core* core = nullptr;
  std::uint64_t generation = 0;

  // Whether an operation that has just come is the one that the first member brought. If not, both owners get an error.
  bool agrees(SimActivity& activity);
  void leave(int position);  // gone to be used again when it was the last
  std::span<const int> places_of(int node) const;
  bool live(const Timer& timer) override { return timer.arg == generation; }
  void fire(const Timer& timer) override;
};

struct SharedComm {
  SharedComm(std::uint64_t id, std::uint32_t epoch, runtime::Axis axis, std::vector<int> members, int ranks_per_node);

  int position(int rank) const;  // -1: no member
  int size() const { return int(members.size()); }
  Group& group(std::uint64_t sequence);  // found or made
  void give_back(Group& group);          // empty: forget it

  std::uint64_t id;
  std::uint32_t epoch;
  runtime::Axis axis;
  std::vector<int> members;
  std::size_t simulated = 0;  // members that take part themselves; those of a class stand for the others
  int stands_for = 1;         // communicators like this one, of ranks that its members stand for, itself included
  int nodes = 1;
  int per_node_max = 1;
  std::vector<int> by_node;      // positions, those of one node together
  std::vector<int> node_begins;  // in by_node, with the end

 private:
  struct Live {
    std::uint64_t sequence;
    Group* group;
  };
  bool contiguous_ = true;
  std::vector<int> positions_;  // by launch rank, where the members are not contiguous
  std::vector<Live> live_;      // few: members are seldom far apart
  std::vector<Group*> free_;
  std::deque<Group> groups_;
};

class SimActivity : public runtime::Activity, public TimerTarget {
 public:
  enum class State : std::uint8_t { free, queued, started };
  explicit SimActivity(bool is_native) : native(is_native) {}

  void start() final;  // the queue has reached it
  void drop();         // the rank is dead: it never happens
  // Its communicator was aborted or revoked: completes with scribbled buffers, now or when the queue reaches it.
  void cut_short();
  // Takes back what no peer has taken yet.
  virtual void withdraw() = 0;
  // The rank that it waits for, for wait-for graphs: "waits for rank 5 (its message)".
  virtual std::string waits_for() const = 0;
  virtual runtime::Transport::Unmatched unmatched() const = 0;
  // What it brings besides its Op, for a mismatch: ", 804 elements over 32 leaves".
  virtual std::string what() const { return ", piece by piece"; }
  // Whether it cannot go on without `rank`, and is linked to it: then its owner learns of that rank's death.
  virtual bool waits_on(int rank) const = 0;

  bool live(const Timer& timer) override { return state == State::started && timer.arg == generation; }
  DueTimer due(const Timer& timer) override;
  // Asks for the memory that the end of this operation will touch.
  void fetch() const;
  void fetch_more() const;  // what the pointers in there lead to

  void fetch_for_fire() const override { fetch_more(); }

  SimTransport* owner = nullptr;  // what the end of an operation needs comes first
  runtime::Queue* queue = nullptr;
  std::uint64_t record = 0;
  std::uint32_t comm = 0;        // index among the owner's communicators
  std::uint32_t generation = 0;  // of this object, which is used again and again
  State state = State::free;
  bool aborted = false;
  const bool native;                // a NativeReduce or NativeScatter; else an Exchange
  SimActivity* previous = nullptr;  // among the communicator's unfinished operations, oldest first
  SimActivity* next = nullptr;
  runtime::Op op;
  TimeNs started_ns = 0;

 protected:
  virtual void post() = 0;
  virtual void scribble() = 0;
  virtual void recycle() = 0;
  void end(runtime::RecordState how);

 private:
  void left(runtime::RecordState how);  // in the books
};

// Whether two members mean the same operation: kind, axis, step, micro-batch and tensor (their sequence numbers are
// equal, or they would not meet).
bool same_meaning(const runtime::Op& a, const runtime::Op& b);

// "rank 1 brought reduce_scatter #7 ..., 'wte.weight' at gradient_reducer.cpp:146, rank 0 brought ..."; more: what else
// differs.
// Two members brought operations that do not fit together. The oracle keeps that, and where collectives are strict both
// get an error (other may be gone). As on NCCL no other member does, and where they are not strict none does: the
// operation hangs until a watchdog ends it.
void tell_mismatch(SimActivity& one, SimActivity* other, const std::string& why);
std::string mismatch_text(const runtime::Op& a, const std::string& more_a, const runtime::Op& b,
                          const std::string& more_b);

// Leaves in a range what an aborted operation leaves.
void scribble_on(runtime::Buffer& buffer, std::size_t lo, std::size_t hi);

}  // namespace seeksim::sim
