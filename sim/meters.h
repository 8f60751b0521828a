// What a rank is measured by while it runs.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "runtime/seams/op.h"
#include "runtime/seams/queue.h"
#include "runtime/seams/time.h"

namespace seeksim::sim {

using runtime::TimeNs;

// OverlapMeter: how long a rank's transfers (its communication, or copies between host and device) were in flight, in
// virtual time, and for how much of that something computed: what a user of `overlap_comm` or of offload wants to know.
struct CommOverlap {
  TimeNs in_flight_ns = 0;  // at least one operation had been started and was not over
  TimeNs hidden_ns = 0;     // and a kernel ran on a queue of the same rank that counts
  double share() const { return in_flight_ns > 0 ? double(hidden_ns) / double(in_flight_ns) : 0; }
  CommOverlap& operator+=(const CommOverlap& other) {
    in_flight_ns += other.in_flight_ns;
    hidden_ns += other.hidden_ns;
    return *this;
  }
  // The sum over this many ranks that are alike.
  CommOverlap times(std::int64_t ranks) const { return {in_flight_ns * ranks, hidden_ns * ranks}; }
};

class OverlapMeter {
 public:
  // Only the transfers of steps: while a world is made, mended or ended there is nothing to hide it under.
  static bool counts(const runtime::Op& op) {
    return op.phase != runtime::Phase::init && op.phase != runtime::Phase::recovery &&
           op.phase != runtime::Phase::checkpoint;
  }

  void transfer_starts(TimeNs now) { advance(now), ++in_flight_; }
  void transfer_ends(TimeNs now) { advance(now), --in_flight_; }
  void compute_starts(TimeNs now) { advance(now), ++computing_; }
  void compute_ends(TimeNs now) { advance(now), --computing_; }

  const CommOverlap& total() const { return total_; }

 private:
  void advance(TimeNs now) {
    if (in_flight_ > 0) {
      const TimeNs passed = now - since_;
      total_.in_flight_ns = runtime::later(total_.in_flight_ns, passed);
      if (computing_ > 0) total_.hidden_ns = runtime::later(total_.hidden_ns, passed);
    }
    since_ = now;
  }

  int in_flight_ = 0;
  int computing_ = 0;  // queues that do
  TimeNs since_ = 0;
  CommOverlap total_;
};

// PassMeter: when a rank's compute queue was busy with the forward and backward passes of a step, in virtual time: what
// is missing to the time from the first to the last of them, on all ranks, is a pipeline's bubble.
struct StepPasses {
  TimeNs first_ns = -1;  // of any rank; -1: there were none
  TimeNs last_ns = 0;
  TimeNs busy_ns = 0;  // of all ranks together
  int ranks = 0;
  double bubble() const {
    const double all = double(last_ns - first_ns) * ranks;
    return ranks > 0 && all > 0 ? 1 - double(busy_ns) / all : 0;
  }
  StepPasses& operator+=(const StepPasses& other) {
    if (other.ranks == 0) return *this;
    first_ns = ranks > 0 ? std::min(first_ns, other.first_ns) : other.first_ns;
    last_ns = std::max(last_ns, other.last_ns);
    busy_ns += other.busy_ns;
    ranks += other.ranks;
    return *this;
  }
  StepPasses times(std::int64_t alike) const { return {first_ns, last_ns, busy_ns * alike, int(ranks * alike)}; }
};

class PassMeter {
 public:
  // Measures the first steps only, so that a long run of a large world does not fill memory.
  static constexpr std::size_t kSteps = 64;

  void runs(const runtime::Op& op, TimeNs now, TimeNs duration) {
    using runtime::Phase;
    if (op.phase != Phase::forward && op.phase != Phase::backward && op.phase != Phase::recompute) return;
    if (op.step < 0 || std::size_t(op.step) >= kSteps) return;
    if (steps_.size() <= std::size_t(op.step)) steps_.resize(std::size_t(op.step) + 1);
    StepPasses& step = steps_[std::size_t(op.step)];
    if (step.ranks == 0) step.first_ns = now;
    step.ranks = 1;
    step.last_ns = runtime::later(now, duration);
    step.busy_ns = runtime::later(step.busy_ns, duration);
  }
  const std::vector<StepPasses>& steps() const { return steps_; }

 private:
  std::vector<StepPasses> steps_;
};

// TrainingMeter: until when a rank trained. What it does after its last step, to hand out what it has learnt, is no
// part of any step.
class TrainingMeter {
 public:
  // Training is over: what belongs to `step` or a later one does not count any more.
  void rests(std::int64_t step, TimeNs now) {
    from_ = step;
    until_ = std::max(until_, now);
  }
  void goes_on() { from_ = kNever; }  // a failure made the last step undone, or has to be repaired
  bool resting() const { return from_ != kNever; }
  bool counts(const runtime::Op& op) const { return op.step < from_; }
  void did(const runtime::Op& op, TimeNs end) {
    if (counts(op)) until_ = std::max(until_, end);
  }
  TimeNs until() const { return until_; }

 private:
  static constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();
  std::int64_t from_ = kNever;
  TimeNs until_ = 0;
};

// FileUse: bytes that went to files and came from them, by what they hold and by step. Asked of the launches of storage
// queues, so that a run of shapes knows it too.
struct FileUse {
  struct Bytes {
    std::uint64_t read = 0;  // what is read back to see what a disk holds is in it
    std::uint64_t written = 0;
  };
  std::map<std::string, Bytes> by_kind;   // "adam m"
  std::map<std::int64_t, Bytes> by_step;  // -1: outside steps
  bool any() const { return !by_kind.empty(); }

  void add(const runtime::Op& op, const runtime::Cost& cost) {
    const std::uint64_t bytes = op.bytes > 0 ? std::uint64_t(cost.bytes) : 0;  // making durable moves none
    if (bytes == 0) return;
    for (Bytes* use : {&by_kind[op.tensor], &by_step[op.step]})
      (op.kind == runtime::OpKind::storage_read ? use->read : use->written) += bytes;
  }

  FileUse& operator+=(const FileUse& other) {
    const auto merge = [](auto& into, const auto& from) {
      for (const auto& [key, bytes] : from) {
        into[key].read += bytes.read;
        into[key].written += bytes.written;
      }
    };
    merge(by_kind, other.by_kind);
    merge(by_step, other.by_step);
    return *this;
  }
};

// What a RaceDetector finds: two call sites that race, however often.
struct Race {
  int rank = -1;
  std::string text;
  std::uint64_t times = 1;
};

// And one that reads a buffer where nothing was written. text is of the first time.
struct UnwrittenRead {
  int rank = -1;
  std::string text;
  std::uint64_t times = 1;
};

}  // namespace seeksim::sim
