// Hand-written seams, as small as possible: each notes what it is asked and gives the answer that the test has set. The
// decorators under test are wrapped around these, so a test sees directly what they let through.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "faults/plan.h"
#include "tests/support/empty_storage.h"

namespace seeksim::faults::test {

using namespace seeksim::runtime;
using seeksim::test::EmptyStorage;

// A sleep ends at once, and the clock is later. A sleep without end is killed by the end of its world.
class ManualClock final : public Clock {
 public:
  TimeNs now() const override { return now_; }
  void sleep_until(TimeNs t) override {
    sleeps.push_back(t);
    if (t == kForever) throw RankDied{-1};
    now_ = t;
  }
  void set(TimeNs t) { now_ = t; }
  std::vector<TimeNs> sleeps;

 private:
  TimeNs now_ = 0;
};

class NoQueue final : public Queue {
 public:
  void enqueue_kernel(const Op&, Cost, const Closure&, std::span<const Range>) override { ++launched; }
  void enqueue_activity(const Op&, Activity&, std::span<const Range>) override {}
  void activity_done(Activity&) override {}
  Event record() override { return {}; }
  void wait(const Event&) override {}
  bool done(const Event&) const override { return true; }
  const char* name() const override { return "none"; }
  int launched = 0;
};

// A device on which everything takes 1000 ns.
class FixedDevice final : public Device {
 public:
  BufferPtr allocate(std::size_t bytes, MemoryTag, const char*) override {
    allocated.push_back(bytes);
    return nullptr;
  }
  BufferPtr allocate_in(runtime::Space, std::size_t bytes, MemoryTag, const char*) override {
    allocated.push_back(bytes);
    return nullptr;
  }
  void release(Buffer*) override { ++released; }
  Queue& compute_queue() override { return queue; }
  Queue& communication_queue() override { return queue; }
  Queue& copy_queue() override { return queue; }
  Queue& host_queue() override { return queue; }
  Queue& storage_queue() override { return queue; }
  Queue& message_queue(MessageQueue) override { return queue; }
  TimeNs duration(const Op&, Cost) const override { return 1000; }
  WaitResult wait(const Event&, TimeNs, std::uint32_t) override {
    ++waits;
    return WaitResult::timed_out;
  }
  void drain() override { ++drains; }
  void host_touches(const runtime::Op&, const runtime::Range&) override {}
  std::size_t capacity(runtime::Space) const override { return 7; }
  MemoryUse use(MemoryTag, runtime::Space) const override { return {1, 2}; }
  MemoryUse use_total(runtime::Space) const override { return {3, 4}; }

  NoQueue queue;
  std::vector<std::size_t> allocated;
  int released = 0;
  int waits = 0;
  int drains = 0;
};

class NotingTransport final : public Transport {
 public:
  struct Call {
    std::string what;
    Op op;
    std::vector<Piece> pieces;
    DiesAt dies = DiesAt::never;
  };
  Comm create(const Op& op, const CommSpec& spec, TimeNs) override {
    members = spec.members;
    return note("create", op), Comm{1};
  }
  CommResult exchange(Queue&, Comm, const Op& op, std::span<const Piece> pieces, DiesAt dies) override {
    calls.push_back({"exchange", op, {pieces.begin(), pieces.end()}, dies});
    return CommResult::success;
  }
  bool has_native(Comm, const Op&) const override { return native; }
  CommResult tree_all_reduce(Queue&, Comm, const Op& op, const TreeReduce&) override {
    return note("tree_all_reduce", op), CommResult::success;
  }
  LibrarySums library_sums() const override { return LibrarySums::instead; }
  CommResult library_all_reduce(Queue&, Comm, const Op& op, VecView<const float>, VecView<float>) override {
    return note("library_all_reduce", op), CommResult::success;
  }
  CommResult library_reduce(Queue&, Comm, const Op& op, VecView<const float>, std::span<const SumShare>) override {
    return note("library_reduce", op), CommResult::success;
  }
  CommResult async_error(Comm) override { return CommResult::remote_error; }
  CommResult revoke(Comm) override { return note("revoke"), CommResult::in_progress; }
  CommResult abort(std::span<const Comm>) override { return note("abort"), CommResult::in_progress; }
  CommResult finalize(Comm) override { return note("finalize"), CommResult::in_progress; }
  CommResult destroy(Comm) override { return note("destroy"), CommResult::in_progress; }
  Comm split(const Op& op, Comm, int, int, TimeNs) override { return note("split", op), Comm{2}; }
  Comm shrink(const Op& op, Comm, std::span<const int>, TimeNs) override { return note("shrink", op), Comm{3}; }
  Unmatched unmatched(Comm) const override { return {true, Op{}, 3, true}; }

  bool native = true;
  std::vector<Call> calls;
  std::vector<int> members;  // of the communicator that was built last

 private:
  void note(const char* what, const Op& op = {}) { calls.push_back({what, op, {}, DiesAt::never}); }
};

class NotingControlPlane final : public ControlPlane {
 public:
  std::uint32_t epoch() const override { return 5; }
  std::vector<int> members() const override { return {0, 1}; }
  void revoke(std::uint32_t, const Op&, ErrorKind) override { ++revokes; }
  bool revoked(std::uint32_t) const override { return false; }
  Agreement agree(const Op&, std::uint32_t epoch, const Ballot& ballot, TimeNs) override {
    ++agreements;
    Agreement agreement;
    agreement.epoch = epoch;
    agreement.members = {0};
    agreement.ballots = {ballot};
    return agreement;
  }
  void enter_epoch(std::uint32_t, std::span<const int>) override { ++entered; }

  int revokes = 0;
  int agreements = 0;
  int entered = 0;
};

// The seams of one rank, without faults.
struct Inner {
  ManualClock clock;
  FixedDevice device;
  NotingTransport transport;
  EmptyStorage storage;
  NotingControlPlane control;
  Seams seams() { return {clock, device, transport, storage, control}; }
};

// Ranks on `nodes` nodes of `per_node` ranks each, under one plan; every rank's seams are decorated at once.
class Bench {
 public:
  explicit Bench(std::vector<Rule> rules, int nodes = 2, int per_node = 2, std::uint64_t seed = 1)
      : plan(std::move(rules), seed, node_table(nodes, per_node)), inner(std::size_t(nodes * per_node)) {
    for (int rank = 0; rank < nodes * per_node; ++rank)
      seams.push_back(plan.decorate(rank, inner[std::size_t(rank)].seams()));
  }

  static std::vector<int> node_table(int nodes, int per_node) {
    std::vector<int> table;
    for (int rank = 0; rank < nodes * per_node; ++rank) table.push_back(rank / per_node);
    return table;
  }

  // Posts one collective as rank `rank`: a piece of 64 bytes to and from each other rank. Returns what reached the
  // transport.
  NotingTransport::Call exchange(int rank, const Op& op) {
    std::vector<Piece> pieces;
    for (int peer = 0; peer < int(inner.size()); ++peer) {
      if (peer == rank) continue;
      pieces.push_back({peer, true, nullptr, 0, 64, nullptr});
      pieces.push_back({peer, false, nullptr, 0, 64, nullptr});
    }
    Inner& own = inner[std::size_t(rank)];
    seams[std::size_t(rank)].transport.exchange(own.device.queue, Comm{1}, op, pieces);
    return own.transport.calls.back();
  }

  // The fate of the piece that rank `from` sends to rank `to`; null if there is none.
  const PieceFate* fate(int from, int to, const Op& op) {
    for (const Piece& piece : exchange(from, op).pieces) {
      if (piece.send && piece.peer == to) return piece.fate;
    }
    return nullptr;
  }

  void at(TimeNs now) {
    for (Inner& own : inner) own.clock.set(now);
  }
  std::uint64_t fired(std::size_t rule = 0) const { return plan.status()[rule].fired; }

  FaultPlan plan;
  std::vector<Inner> inner;
  std::vector<Seams> seams;
};

inline Op reduction(int rank, std::int64_t step, std::uint64_t sequence = 1, std::uint32_t epoch = 0) {
  Op op;
  op.kind = OpKind::all_reduce;
  op.phase = Phase::grad_reduce;
  op.rank = rank;
  op.step = step;
  op.sequence = sequence;
  op.epoch = epoch;
  return op;
}

inline Op of_kind(OpKind kind, int rank, std::int64_t step, Phase phase = Phase::grad_reduce) {
  Op op = reduction(rank, step);
  op.kind = kind;
  op.phase = phase;
  return op;
}

inline Rule rule(FaultKind kind) {
  Rule r;
  r.kind = kind;
  return r;
}

inline Rule link(FaultKind kind, int from, int to) {
  Rule r = rule(kind);
  r.from = from;
  r.to = to;
  return r;
}

}  // namespace seeksim::faults::test
