// RaceDetector: happens-before on one rank's memory, the device's and the host's. Every launch, every operation of a
// transport and every access of the host declares what it reads and writes; queues, events and the host's waits order
// these. Two accesses to the same bytes, one of them a write, are a race if neither comes before the other. So is
// giving memory back while something that was enqueued still uses it.
//
// All of it follows from what the host says, in the order in which it says it, so a finding depends neither on
// durations nor on the seed: a wait that is missing is found even where the simulated times hide it.
//
// Clocks count places in queues. An operation comes after everything in front of it in its queue, after the events that
// its queue waits for, and after all that the host has seen done. An access of the host itself comes before all that it
// enqueues afterwards, so it is compared with pending operations only, and never kept.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <vector>

#include "runtime/host/access_watcher.h"
#include "runtime/seams/seams.h"
#include "sim/meters.h"

namespace seeksim::sim {

// UnwrittenReads: whether anything is read before it is written, on one rank. Every launch, every operation of a
// transport and every access of the host declares its reads and writes; from these it keeps, for each buffer, the bytes
// that have been written since the buffer was allocated. A declared read of other bytes is a finding.
//
// It needs no values, so a finding does not depend on what a fresh byte holds, nor on what arithmetic makes of it. It
// takes accesses in the host's order: that a write is declared first, and comes later in time, is the race detector's
// to find. What is read in place, through a view that also writes, is declared as a write and not looked at.
class UnwrittenReads {
 public:
  explicit UnwrittenReads(int rank) : rank_(rank) {}

  void allocated(const runtime::Buffer& buffer) { written_in(buffer) = {}; }
  void released(const runtime::Buffer& buffer) { written_in(buffer) = {}; }
  // `op` reads and writes `ranges`: it reads all before it writes any.
  void accesses(const runtime::Op& op, std::span<const runtime::Range> ranges);

  // Distinct pairs of call site and buffer's name, in the order in which they were found; the first kKept.
  std::vector<UnwrittenRead> found() const;
  std::uint64_t reads() const { return reads_; }  // how many were looked at

 private:
  static constexpr std::size_t kKept = 16;

  struct Bytes {
    std::size_t lo = 0, hi = 0;
    bool hold(const runtime::Range& range) const { return lo <= range.lo && range.hi <= hi; }
  };
  // `last` is what the last access needed, part of `all`; nearly always it holds the next one too.
  struct Written {
    Bytes last;
    std::vector<Bytes> all;  // ascending, with gaps between them
  };
  struct Finding {
    const char* site;
    const char* buffer;
    UnwrittenRead read;
  };

  Written& written_in(const runtime::Buffer& buffer);
  void read(const runtime::Op& op, const runtime::Range& range);
  void write(const runtime::Range& range);
  void add(const runtime::Op& op, const runtime::Range& range, const Bytes& gap);

  int rank_;
  std::vector<Written> buffers_;  // by id
  std::vector<Finding> findings_;
  std::uint64_t reads_ = 0;
};

class RaceDetector final : public runtime::AccessWatcher {
 public:
  explicit RaceDetector(int rank) : rank_(rank), unwritten_(rank) {}

  // ---- runtime::AccessWatcher
  void enqueued(const runtime::Event& through, const runtime::Op& op, std::span<const runtime::Range> ranges) override;
  void queue_waits(const runtime::Event& place, const runtime::Event& event) override;
  void host_waited(const runtime::Event& event) override;
  void host_drained() override;
  void host_touches(const runtime::Op& op, const runtime::Range& range) override;
  void allocated(const runtime::Buffer& buffer) override;
  void released(const runtime::Buffer& buffer) override;

  // The process is gone: memory that it gave back on its way out has no user any more.
  void rank_died() { leaving_.clear(); }

  // Distinct pairs of call sites, in the order in which they were found.
  std::vector<Race> races() const;
  std::uint64_t accesses() const { return accesses_; }  // how many were looked at
  // The same accesses, held against what was written before.
  const UnwrittenReads& unwritten() const { return unwritten_; }

 private:
  static constexpr std::size_t kQueues = 5 + std::size_t(runtime::MessageQueue::count_);
  static constexpr std::size_t kKept = 16;  // pairs of call sites
  using Clock = std::array<std::uint64_t, kQueues>;

  // From a place of a queue on, that queue comes after `clock`.
  struct Mark {
    std::uint64_t place;
    Clock clock;
  };
  struct Past {
    std::uint64_t place;
    runtime::Op op;
  };
  struct Lane {
    const runtime::Queue* queue = nullptr;
    std::uint64_t last = 0;          // place
    Clock clock{};                   // of what was enqueued last
    std::uint64_t host_version = 0;  // of the host's clock that is in it
    std::deque<Mark> marks;          // those that an event may still ask for
    std::deque<Past> past;           // what the host has not seen done, for reports
  };
  // Bytes that were last used alike. A place of 0: never.
  struct Cell {
    std::size_t lo, hi;
    std::uint64_t write;
    std::size_t writer;
    Clock reads;
  };
  struct Shadow {
    std::uint64_t generation = 0;
    std::size_t next = 0;     // behind the cell that was used last
    std::vector<Cell> cells;  // ascending, disjoint
  };
  // One of two accesses, as a report names it.
  struct Access {
    const runtime::Op* op;
    std::size_t lane;  // kHost, kRelease
    bool write;
  };
  struct Finding {
    std::array<const char*, 3> key;  // call sites, buffer
    std::array<bool, 2> writes;
    Race race;
  };
  static constexpr std::size_t kHost = kQueues, kRelease = kQueues + 1;

  std::size_t lane_of(const runtime::Queue* queue);
  Clock clock_at(std::size_t lane, std::uint64_t place) const;
  bool join(Clock& into, const Clock& other) const;
  Shadow& shadow(const runtime::Buffer& buffer);
  static std::size_t first_behind(const Shadow& shadow, std::size_t lo);
  void access(std::size_t lane, const runtime::Op& op, const runtime::Range& range);
  void write(Shadow& shadow, std::size_t first, const Cell& cell);
  void read(Shadow& shadow, std::size_t first, const Cell& cell, std::size_t lane);
  // Whether `cell` is older than one who has seen `clock` and reads or writes it.
  void check(const Cell& cell, const Clock& clock, const Access& now, const runtime::Range& range);
  void check_host(const Access& now, const runtime::Range& range);
  void found(std::size_t lane, std::uint64_t place, bool write, const Access& now, const runtime::Range& range);
  const runtime::Op& past(std::size_t lane, std::uint64_t place) const;
  std::string text(const Access& before, const Access& now, const runtime::Range& range) const;
  const char* who(std::size_t lane) const;
  void settle();

  int rank_;
  std::vector<Lane> lanes_;
  Clock host_{};
  std::uint64_t host_version_ = 1;
  std::uint64_t generation_ = 1;  // of all shadows: older ones hold only what the host has seen done
  std::vector<Shadow> shadows_;   // by id of the buffer
  std::vector<Finding> findings_;
  std::vector<Finding> leaving_;  // about memory given back since anything else happened
  std::uint64_t accesses_ = 0;
  UnwrittenReads unwritten_;
};

}  // namespace seeksim::sim
