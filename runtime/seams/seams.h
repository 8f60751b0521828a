// The five seams: the runtime's only doors to the world. Handed to a rank by reference in `Rank`; no globals. The
// simulator implements them in virtual time (sim/), runtime/backend/ on real machines, and faults/ wraps any of them.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/tree.h"
#include "runtime/seams/buffer.h"
#include "runtime/seams/error.h"
#include "runtime/seams/op.h"
#include "runtime/seams/queue.h"
#include "runtime/seams/time.h"

namespace seeksim::runtime {

// ---- Clock -------------------------------------------------------------------------------------------------------
class Clock {
 public:
  virtual ~Clock() = default;
  virtual TimeNs now() const = 0;
  // Blocks this rank's host. kForever: until the rank is killed or the world ends (throws RankDied then).
  virtual void sleep_until(TimeNs t) = 0;
};

// ---- Device ------------------------------------------------------------------------------------------------------
struct MemoryUse {
  std::size_t now = 0;
  std::size_t peak = 0;
};

// How a host's wait ended.
enum class WaitResult : std::uint8_t { done, timed_out, revoked };

// Queues of their own for messages that must not wait behind others: those of a pipeline's links, one a direction and
// end, those between tensor ways, in an expert group and in a context group.
enum class MessageQueue : std::uint8_t {
  send_activation,
  receive_activation,
  send_gradient,
  receive_gradient,
  tensor,
  expert,
  context,
  count_
};

class Device {
 public:
  virtual ~Device() = default;
  // Memory filled with kPoisonFresh. Throws SeamError{out_of_memory} naming what was asked for and what is free.
  virtual BufferPtr allocate(std::size_t bytes, MemoryTag tag, const char* name) = 0;
  // The same of another space: the host's memory, pageable or pinned. Space::device: allocate().
  virtual BufferPtr allocate_in(Space space, std::size_t bytes, MemoryTag tag, const char* name) = 0;
  virtual void release(Buffer* buffer) = 0;
  virtual Queue& compute_queue() = 0;
  virtual Queue& communication_queue() = 0;
  virtual Queue& copy_queue() = 0;
  virtual Queue& host_queue() = 0;     // kernels on the host's processor (OpKind::host_compute), over its memory
  virtual Queue& storage_queue() = 0;  // reads and writes of files (OpKind::storage_read, storage_write)
  virtual Queue& message_queue(MessageQueue which) = 0;  // made when first asked for
  // How long a launch takes; decorators stretch it (stragglers).
  virtual TimeNs duration(const Op& op, Cost cost) const = 0;
  // The one blocking primitive. Returns `revoked` as soon as `epoch` is revoked; also, once, when a communicator of
  // this rank fails (see its async error), so that no rank waits for its watchdog when the error is already known.
  // Throws SeamError{closure} when a kernel failed.
  virtual WaitResult wait(const Event& event, TimeNs deadline, std::uint32_t epoch) = 0;
  // Waits until every queue is empty; after an abort all that is left completes as garbage, so this ends.
  virtual void drain() = 0;
  // The same, but not for longer: false where something is still running then (a kernel that never ends). Without
  // files: the queue of files goes on, on which a checkpoint may be on its way.
  virtual bool drain_by(TimeNs deadline, bool files_too) {
    static_cast<void>(deadline);
    static_cast<void>(files_too);
    drain();
    return true;
  }
  // Time that the launches on the compute queue have taken so far; 0 where it is not measured. Straggler scores are
  // made of it.
  virtual TimeNs busy_ns() const { return 0; }
  // Declares that the host itself reads or writes device memory now (a launch declares by its views). Nothing happens
  // but that a race detector hears of it.
  virtual void host_touches(const Op& op, const Range& range) = 0;
  virtual std::size_t capacity(Space space = Space::device) const = 0;
  virtual MemoryUse use(MemoryTag tag, Space space = Space::device) const = 0;
  virtual MemoryUse use_total(Space space = Space::device) const = 0;
};

// ---- Transport ---------------------------------------------------------------------------------------------------
// NCCL's result codes, and `timeout`, which only our watchdog produces (NCCL 2.28 has none).
enum class CommResult : std::uint8_t {
  success = 0,
  unhandled_cuda = 1,
  system = 2,
  internal = 3,
  invalid_argument = 4,
  invalid_usage = 5,
  remote_error = 6,
  in_progress = 7,
  timeout = 8
};
std::string_view name(CommResult result);
// The kind of failure that a failed call or an asynchronous error means to a waiting rank (error.cpp has the table).
ErrorKind error_kind(CommResult result);

// A rank's handle on a communicator; 0 is NULL. Handles are per rank; the id is shared by all members.
struct Comm {
  std::uint32_t handle = 0;
  explicit operator bool() const { return handle != 0; }
};

struct CommSpec {
  std::string_view name;  // "data", for reports
  Axis axis = Axis::data;
  std::uint32_t epoch = 0;   // messages of another epoch are never matched
  std::uint64_t id = 0;      // fresh for each generation; equal on all members
  std::vector<int> members;  // launch ranks; the position is the rank inside the communicator
};

// What a fault rule asks of one piece on its way; null in an undisturbed run. Owned by the fault plan for the whole
// run.
struct PieceFate {
  TimeNs delay_ns = 0;            // added to the transfer
  double slow_factor = 1.0;       // multiplies the transfer's duration
  bool drop = false;              // sent, never delivered
  bool corrupt = false;           // one bit of the payload flips on the way
  std::uint64_t corrupt_bit = 0;  // taken modulo the payload's bits
  bool checksum = true;           // corruption is noticed by the receiver (SeamError{corrupt}); false: silent
  TimeNs replay_ns = 0;           // it arrives a second time, so long after the first; 0: once
  TimeNs down_from = kForever;    // the link carries nothing in [down_from, down_until)
  TimeNs down_until = kForever;
  std::uint32_t rule = 0;          // which rule, 1-based, for the trace
  mutable TimeNs touched_ns = -1;  // set by the transport when this fate first changes a piece's course: the proof of a
                                   // cut that begins while a piece is already under way
};

// Where in an exchange its own rank dies, if a rule says so.
enum class DiesAt : std::uint8_t { never, in_flight, after };

// One contiguous range sent to or received from a peer (a launch rank).
struct Piece {
  int peer = -1;
  bool send = false;
  Buffer* buffer = nullptr;
  std::size_t lo = 0;
  std::size_t hi = 0;
  const PieceFate* fate = nullptr;
  ElementType type = ElementType::bytes;
};

// A canonical sum over a tree of leaves (docs/numerics.md#f3): what one member brings, and where the root goes.
struct TreeReduceSlice {
  kernels::TreeNode node;
  VecView<const float> value;
};
struct TreeReduce {
  std::span<const TreeReduceSlice> parts;  // this member's subtree roots
  Index leaves = 0;
  float factor = 1.0f;  // one multiply at the root
  VecView<float> out;
};

// A canonical sum of which every member gets what it owns: a reduce-scatter by the tree.
struct TreeTarget {
  kernels::TreeNode root;  // whose value it is
  Index first = 0;         // out[i] is element first + i of the parts
  VecView<float> out;
};
struct TreeScatter {
  std::span<const TreeReduceSlice> parts;  // this member's subtree roots, all of one size
  Index leaves = 0;
  float factor = 1.0f;                  // one multiply at each target
  std::span<const TreeTarget> targets;  // what this member owns
  std::span<const Piece> pieces;        // what this member sends and receives for it, as an exchange would
};

// Sums over ranks of a library's own, in an order that only it knows: for `fast` arithmetic (docs/numerics.md).
enum class LibrarySums : std::uint8_t {
  none,
  instead,  // in place of the canonical sums
  beside    // next to them, from the same addends, to be compared with them (NumericAudit)
};

// Elements [first, first + n) of a library's sum, and the member that gets them.
struct SumShare {
  int member = 0;  // by position
  Index first = 0;
  Index n = 0;
  VecView<float> out;  // (n); of this member's own shares only
};

class Transport {
 public:
  virtual ~Transport() = default;

  // Collective over spec.members: all must call it. Blocks the host until every member has, or the deadline
  // (SeamError{timeout}) or a revoke of spec.epoch (SeamError{revoked}).
  virtual Comm create(const Op& op, const CommSpec& spec, TimeNs deadline) = 0;

  // Enqueues a group of sends and receives: all or error. Pieces of one exchange match pieces of the peers' exchanges
  // with the same communicator and op.sequence; the receiver asserts that op.kind and bytes agree. Returns the
  // communicator's state as NCCL would: success even on a communicator that hangs, invalid_usage on a revoked one, the
  // error after one.
  virtual CommResult exchange(Queue& queue, Comm comm, const Op& op, std::span<const Piece> pieces,
                              DiesAt dies = DiesAt::never) = 0;

  // Whether this transport sums `op` (an all_reduce or a reduce_scatter) itself, by the same canonical tree, as one
  // event (the simulator does where no rule or link state can touch a single message). Equal on all members.
  virtual bool has_native(Comm comm, const Op& op) const = 0;
  virtual CommResult tree_all_reduce(Queue& queue, Comm comm, const Op& op, const TreeReduce& reduce) = 0;
  // Every member takes part, with nothing to bring and nothing to get too.
  virtual CommResult tree_reduce_scatter(Queue&, Comm, const Op&, const TreeScatter&) {
    return CommResult::invalid_usage;  // of a transport that has no native sum
  }

  // Whether sums are to be the library's, where this transport has one. Equal on all members.
  virtual LibrarySums library_sums() const { return LibrarySums::none; }
  // out (n) = the sum of all members' values (n), on every member. out may be values.
  virtual CommResult library_all_reduce(Queue&, Comm, const Op&, VecView<const float> values, VecView<float> out) {
    static_cast<void>(values), static_cast<void>(out);
    return CommResult::invalid_usage;  // of a transport that has none
  }
  // The same sum, each share to its member. shares: on all members the same, in the same order; none is empty.
  virtual CommResult library_reduce(Queue&, Comm, const Op&, VecView<const float> values,
                                    std::span<const SumShare> shares) {
    static_cast<void>(values), static_cast<void>(shares);
    return CommResult::invalid_usage;
  }

  // NCCL's verbs. abort is local, takes all communicators of a device in one group, completes pending work with
  // scribbled buffers and never fails; revoke makes later operations fail with invalid_usage; a handle is dead after
  // abort/destroy.
  virtual CommResult async_error(Comm comm) = 0;
  virtual CommResult revoke(Comm comm) = 0;
  virtual CommResult abort(std::span<const Comm> comms) = 0;
  virtual CommResult finalize(Comm comm) = 0;
  virtual CommResult destroy(Comm comm) = 0;
  // All members of the parent call split (color < 0: no part in it); survivors alone call shrink, each with the same
  // list.
  virtual Comm split(const Op& op, Comm parent, int color, int key, TimeNs deadline) = 0;
  virtual Comm shrink(const Op& op, Comm parent, std::span<const int> exclude, TimeNs deadline) = 0;
  // Pieces of the oldest unfinished operation on this communicator that no peer has matched: this rank waits for it.
  struct Unmatched {
    bool pending = false;  // an operation has started and is not complete
    Op op;
    int peer = -1;                // first peer whose piece is missing; -1 when unknown (native collective)
    bool waits_for_send = false;  // true: the peer's message never came; false: the peer never took ours
  };
  virtual Unmatched unmatched(Comm comm) const = 0;
};

// ---- Storage -----------------------------------------------------------------------------------------------------
// Files, with the honesty of POSIX: what is not synced can vanish, a rename is durable after its folder's sync.
// All throw SeamError{io} with path and reason.
class Storage {
 public:
  virtual ~Storage() = default;
  virtual std::string read(std::string_view path) = 0;
  virtual void write(std::string_view path, std::string_view bytes) = 0;  // create or truncate; not durable yet
  virtual void sync(std::string_view path) = 0;                           // file or folder
  virtual void rename(std::string_view from, std::string_view to) = 0;
  virtual void remove(std::string_view path) = 0;
  // Part of a file, into or from memory of the host. Returns how many bytes it was: fewer than asked for at a file's
  // end, when the folder is full, or when the system was interrupted; the caller checks, and asks again for the rest.
  virtual std::size_t read_at(std::string_view path, std::uint64_t offset, std::span<std::byte> into) = 0;
  // Makes the file where there is none, and grows it; what lies between is zero. Not durable yet.
  virtual std::size_t write_at(std::string_view path, std::uint64_t offset, std::span<const std::byte> from) = 0;
  virtual bool exists(std::string_view path) = 0;
  virtual std::vector<std::string> list(std::string_view folder) = 0;  // names, sorted
  virtual std::uint64_t free_bytes(std::string_view folder) = 0;
};

// ---- ControlPlane ------------------------------------------------------------------------------------------------
// How far a rank has come in one of its communicators.
struct CommProgress {
  std::uint64_t id = 0;  // 0: none
  std::uint64_t last_joined = 0;
};

// The checkpoint under way: whether this rank's part of it is durable, or cannot be.
struct CheckpointBallot {
  std::int64_t step = -1;  // steps that it holds; -1: none is under way, or this rank's part is not written yet
  bool failed = false;
  bool complete = false;     // its manifest is durable, and with it the whole; reported by its writer
  std::uint64_t bytes = 0;   // of the rank's file; 0: it has none
  std::uint64_t digest = 0;  // of its content
};

// What a rank puts on the table at an agreement. Plain numbers, so that any transport can carry it.
struct Ballot {
  bool ok = true;
  ErrorKind error = ErrorKind::count_;  // what this rank saw (count_: nothing)
  std::int64_t last_committed = -1;     // step
  std::uint64_t last_joined = 0;        // sequence of the last collective this rank entered
  std::uint64_t stuck_in = 0;           // the communicator that these two sequences are of
  std::uint64_t stuck_sequence = 0;     // sequence of the operation it could not finish; 0: none
  OpKind stuck_kind = OpKind::count_;
  std::int64_t stuck_meaning = 0;  // a hash of what that operation is about; equal on all members
  std::int32_t missing_peer = -1;  // the peer that it waited for, if known (for corrupt and mismatch: the sender)
  bool missing_is_sender = false;
  TimeNs joined_ns = -1;  // when it entered the operation it could not finish; -1: unknown
  TimeNs detected_ns = 0;
  std::array<CommProgress, 8> progress{};  // of its communicators, the first ones
  CheckpointBallot checkpoint;
  TimeNs busy_ns = 0;                   // what this rank's device computed since its last vote took
  TimeNs leaves_at_ns = kForever;       // it got notice to leave by then (ControlPlane::notice)
  std::array<std::int64_t, 4> words{};  // free for the caller (votes, digests)
  std::vector<std::int64_t> hand_over;  // what who joins has to know (membership.h), of one that knows it
  std::vector<std::int64_t> told;       // free for the caller: as many words as it has workers to tell of
};

struct Agreement {
  std::uint32_t epoch = 0;
  std::vector<int> members;     // the living: ranks that answered, ascending
  std::vector<int> dead;        // members of the epoch that did not answer in time: fenced from now on
  std::vector<Ballot> ballots;  // one a member, same order
  std::vector<int> silent;      // of the dead: those whose heartbeats had stopped
  std::vector<int> joiners;     // ranks that are no members and wait in join(), ascending
};

// A rank's way into a run that is under way: the epoch that it was named in, and with whom.
struct TakenIn {
  std::uint32_t epoch = 0;
  std::vector<int> members;
};

class ControlPlane {
 public:
  virtual ~ControlPlane() = default;
  virtual std::uint32_t epoch() const = 0;
  virtual std::vector<int> members() const = 0;
  // Non-blocking; reaches every living member (ULFM's revoke): their waits on this epoch return `revoked`.
  virtual void revoke(std::uint32_t epoch, const Op& op, ErrorKind why) = 0;
  virtual bool revoked(std::uint32_t epoch) const = 0;
  // The same answer on every member that gets one. Ends when all members of the epoch have voted or `deadline` comes:
  // a member that did not vote is dead and fenced. A revoke of the epoch cuts a `vote` short (SeamError{revoked}, on
  // all members or on none), but no `agree` (op.kind). Throws SeamError{fenced} on a rank that was declared dead.
  virtual Agreement agree(const Op& op, std::uint32_t epoch, const Ballot& ballot, TimeNs deadline) = 0;
  // All survivors of an agreement enter the next epoch with the same members.
  virtual void enter_epoch(std::uint32_t epoch, std::span<const int> members) = 0;
  // Called by a rank that is no member (a spare, or a rank that came back under its launch rank). Waits until members
  // enter an epoch with it. A rank that was fenced joins as a new incarnation, which remembers nothing.
  // Throws SeamError{timeout}, or {no_progress} where the run is over or this control plane admits no ranks.
  virtual TakenIn join(const Op& op, TimeNs deadline) {
    static_cast<void>(deadline);
    throw SeamError(ErrorKind::no_progress, op, "this control plane admits no rank");
  }
  // When this rank will be gone, if it got notice (preemption); kForever: it got none.
  virtual TimeNs notice() { return kForever; }
  // This rank's process does not run until then (stopped by a signal, or with its host): nor does what sends its
  // heartbeats. For faults; a process that only waits is not stopped.
  virtual void stopped_until(TimeNs) {}
};

// ---- all five, as a decorator takes and returns them --------------------------------------------------------------
struct Seams {
  Clock& clock;
  Device& device;
  Transport& transport;
  Storage& storage;
  ControlPlane& control;
};

}  // namespace seeksim::runtime
