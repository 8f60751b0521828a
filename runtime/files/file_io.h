// FileIo: a rank's files: those of offloaded state and those of checkpoints. Reads and writes are launches on the
// storage queue, in requests of aio's block size; the host waits for them, looks at length and content, and asks again,
// ever later, for what is missing or wrong. What a file is said to hold after a write is read back, since a disk may
// lie.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "runtime/launch/any_vec.h"
#include "runtime/plan/plan.h"
#include "runtime/seams/rank.h"

namespace seeksim::runtime {

// Contiguous values between a file and memory of the host. Stays where it is while it is under way.
struct Transfer {
  const std::string* path = nullptr;  // outlives it
  std::uint64_t offset = 0;           // bytes, in the file
  AnyVec values;                      // none: what was written becomes durable, or the file gets another name
  bool write = false;
  const std::string* renamed_to = nullptr;  // outlives it too
  // Does nothing, and fails, unless that one was done right. So a chain can be enqueued at once.
  const Transfer* after = nullptr;
  std::uint64_t digest = 0;  // of the bytes: given for a read, returned by a write
  bool unchecked = false;    // a planted bug: a read is not compared with it
  Op op;
  Event done;
  bool pending = false;

  // What the launches leave behind.
  struct Result {
    std::uint64_t bytes = 0;
    bool failed = false;
    bool differs = false;  // what was read back is not what was written
    std::array<char, 200> why{};
  } result;
};

class FileIo {
 public:
  FileIo(Rank& rank, const TrainPlan& plan);

  // Enqueues it. Its memory must not be touched before finish().
  void start(Transfer& transfer);
  // Waits until it is done, and done right. Throws SeamError{io} naming file, offset and rank. Cannot be cut short by a
  // revoke: it is used after the commit point too, from where everybody goes forward.
  void finish(Transfer& transfer);
  // Waits until nothing of it is under way, whatever came of it.
  void give_up(Transfer& transfer);
  bool done(const Transfer& transfer) const;  // it would not be waited for

 private:
  void enqueue(Transfer& transfer);
  void enqueue_write(Transfer& transfer, std::uint64_t at, std::uint64_t n);
  void enqueue_read(Transfer& transfer, std::uint64_t at, std::uint64_t n);
  void enqueue_read_back(Transfer& transfer, std::uint64_t at, std::uint64_t n);
  void enqueue_sync(Transfer& transfer);
  void enqueue_rename(Transfer& transfer);
  void wait(const Transfer& transfer);
  std::string wrong_with(const Transfer& transfer) const;

  Rank& rank_;
  const RecoveryPlan& recovery_;
  bool has_values_;              // not in a run of shapes
  bool short_reads_taken_;       // a planted bug
  std::uint64_t block_bytes_;    // of a request
  std::uint64_t request_bytes_;  // of a launch: as many requests as may be under way together
};

}  // namespace seeksim::runtime
