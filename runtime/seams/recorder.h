// The flight recorder: every Op of a rank with its times and fate, always on, allocated as it fills, a ring past its
// limit. It also carries the rank's fingerprint: an order-dependent hash over Ops and tensor digests, by which two runs
// are compared and the first differing Op is found.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "runtime/seams/buffer.h"
#include "runtime/seams/op.h"
#include "runtime/seams/time.h"

namespace seeksim::runtime {

enum class RecordState : std::uint8_t { enqueued, started, completed, aborted, failed, timed_out };

std::string_view name(RecordState state);

// What an operation of a communicator moves: its first pieces out and in.
struct Payload {
  ElementType type = ElementType::bytes;
  std::uint64_t count = 0;  // elements that this rank sends
  // Where: number of a buffer of this rank (0: none) and the byte in it.
  std::uint64_t from = 0, from_offset = 0;
  std::uint64_t to = 0, to_offset = 0;
};

struct Record {
  Op op;
  Payload payload;
  TimeNs enqueued_ns = 0;
  TimeNs started_ns = -1;
  TimeNs ended_ns = -1;
  RecordState state = RecordState::enqueued;
  std::int32_t result = 0;  // the communicator's code when it ended (CommResult)
  std::uint32_t comm = 0;   // this rank's handle on the communicator
  std::uint32_t rule = 0;   // fault rule that touched it, 1-based; 0: none
};

// A communicator of this rank, as records name it.
struct CommHeader {
  std::uint32_t handle = 0;
  std::uint64_t id = 0;  // the same on all members
  std::uint32_t epoch = 0;
  Axis axis = Axis::world;
  std::vector<int> members;  // launch ranks
  TimeNs created_ns = 0;
  TimeNs timeout_ns = 0;  // of the watchdog on each of its operations
};

// One entry of the fingerprint's log: cheap enough to keep for every Op when determinism is being verified.
struct FingerprintEntry {
  Op op;
  std::uint64_t value = 0;
};

class Recorder {
 public:
  static constexpr std::size_t kRingMax = 2000;  // as PyTorch's flight recorder
  static constexpr std::size_t kCommsKept = 16;
  static constexpr std::size_t kMembersKept = 1024;  // a larger communicator is recorded without its members

  // Returns the record's number (1-based), to be passed to the calls below.
  std::uint64_t enqueued(const Op& op, TimeNs now, std::uint32_t comm = 0, const Payload& payload = {});
  void started(std::uint64_t number, TimeNs now);
  void ended(std::uint64_t number, TimeNs now, RecordState state, std::int32_t result = 0);
  // The watchdog went off on an operation that has not ended: how it ends afterwards is no news.
  void timed_out(const Op& op);
  // The last kCommsKept are kept.
  void communicator(CommHeader header);
  const std::vector<CommHeader>& communicators() const { return comms_; }
  void touched_by(std::uint64_t number, std::uint32_t rule);

  // Mixes an Op that leaves the rank, or a digest (value), into the fingerprint.
  void mix(const Op& op, std::uint64_t value);
  std::uint64_t fingerprint() const { return fingerprint_; }
  void keep_log(bool on) { keep_log_ = on; }
  const std::vector<FingerprintEntry>& log() const { return log_; }

  // The last so many, oldest first.
  std::vector<Record> records(std::size_t last = kRingMax) const;
  std::uint64_t count() const { return count_; }
  void fetch(std::uint64_t number) const;  // asks for a record's memory, which will be needed soon
  void fetch_next() const;
  // A shorter ring, for worlds of thousands of ranks. To be called before the first record.
  void limit(std::size_t records);

 private:
  Record* find(std::uint64_t number);

  std::size_t limit_ = kRingMax;
  std::vector<Record> ring_;
  std::vector<CommHeader> comms_;
  std::uint64_t count_ = 0;
  std::uint64_t fingerprint_ = 0;
  bool keep_log_ = false;
  std::vector<FingerprintEntry> log_;
};

}  // namespace seeksim::runtime
