// The flight recorder: every Op of a rank with its times and fate, always on, allocated as it fills, a ring past its
// limit. It also carries the rank's fingerprint: an order-dependent hash over Ops and tensor digests, by which two runs
// are compared and the first differing Op is found.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/op.h"
#include "runtime/time.h"

namespace seeksim::runtime {

enum class RecordState : std::uint8_t { enqueued, started, completed, aborted, failed, timed_out };

struct Record {
  Op op;
  TimeNs enqueued_ns = 0;
  TimeNs started_ns = -1;
  TimeNs ended_ns = -1;
  RecordState state = RecordState::enqueued;
  std::uint32_t rule = 0;  // fault rule that touched it, 1-based; 0: none
};

// One entry of the fingerprint's log: cheap enough to keep for every Op when determinism is being verified.
struct FingerprintEntry {
  Op op;
  std::uint64_t value = 0;
};

class Recorder {
 public:
  static constexpr std::size_t kRingMax = 2000;  // as PyTorch's flight recorder

  // Returns the record's number (1-based), to be passed to the calls below.
  std::uint64_t enqueued(const Op& op, TimeNs now);
  void started(std::uint64_t number, TimeNs now);
  void ended(std::uint64_t number, TimeNs now, RecordState state);
  void touched_by(std::uint64_t number, std::uint32_t rule);

  // Mixes an Op that leaves the rank, or a digest (value), into the fingerprint.
  void mix(const Op& op, std::uint64_t value);
  std::uint64_t fingerprint() const { return fingerprint_; }
  void keep_log(bool on) { keep_log_ = on; }
  const std::vector<FingerprintEntry>& log() const { return log_; }

  // Oldest first.
  std::vector<Record> records() const;
  std::uint64_t count() const { return count_; }
  void fetch(std::uint64_t number) const;  // asks for a record's memory, which will be needed soon
  void fetch_next() const;
  // A shorter ring, for worlds of thousands of ranks. To be called before the first record.
  void limit(std::size_t records);

 private:
  Record* find(std::uint64_t number);

  std::size_t limit_ = kRingMax;
  std::vector<Record> ring_;
  std::uint64_t count_ = 0;
  std::uint64_t fingerprint_ = 0;
  bool keep_log_ = false;
  std::vector<FingerprintEntry> log_;
};

}  // namespace seeksim::runtime
