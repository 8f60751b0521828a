// CheckpointWriter: a rank's part in writing checkpoints. State is copied into memory of the host, and files are
// written behind training, on the storage queue, in an order in which a crash at any point leaves the last checkpoint
// whole. Each rank makes its file durable. When all have reported that in a vote, the lowest rank makes the manifest
// durable under another name, and then its name. One checkpoint is under way at a time. If it cannot be written, all
// ranks give it up and report that; training goes on.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "runtime/checkpoint/checkpoint_format.h"
#include "runtime/detect/observer.h"
#include "runtime/files/file_io.h"
#include "runtime/files/safetensors.h"
#include "runtime/seams/seams.h"

namespace seeksim::runtime {

// A tensor of a rank's file, where it is now.
struct SavedPiece {
  PieceName name;
  AnyVec values;
};

class CheckpointWriter {
 public:
  CheckpointWriter(Rank& rank, const TrainPlan& plan, Observer& observer);

  bool under_way() const { return under_way_; }
  std::int64_t last_complete() const { return complete_; }  // steps that it holds; -1: none of this run

  void begins_with(std::int64_t step) { complete_ = step; }  // the run goes on from that one

  // Begins one, on all members alike: makes memory for this rank's file and enqueues the copies into it on the copy
  // queue. Want of memory gives the checkpoint up (in the next vote, so that all do). state: at this commit.
  void snapshot(const RunState& state, const std::vector<SavedPiece>& pieces, bool lowest);
  // The copies are done: begins to write the file.
  void write();

  // In every vote: how far this rank has come, and what all came to.
  CheckpointBallot ballot();
  void heard(const Agreement& agreement);
  // Waits until what this rank is writing now is written, or has failed.
  void wait();
  // After a failure of the step, with every queue empty: nothing is under way any more.
  void give_up();
  // In the world after that: a checkpoint that was given up may still be whole. The lowest rank looks, and reports.
  void look_again(bool lowest);

 private:
  void write_file();
  bool writes_manifest(bool lowest) const;
  void fail(const std::string& why);
  void end(bool complete);
  bool advance(bool wait);
  void drop_chain();
  void discard();
  void write_manifest(const Agreement& agreement);
  void publish_shapes();
  Transfer& chain(const std::string& path, AnyVec values, const char* tensor);
  void remove_old();
  void remove_quietly(const std::string& path);
  bool has_values() const { return plan_.numerics != Numerics::shapes; }

  Rank& rank_;
  const TrainPlan& plan_;
  Observer& observer_;
  FileIo io_;

  bool under_way_ = false;
  bool lowest_ = false;
  bool failed_ = false;
  struct Durable {
    bool file = false;
    bool all = false;  // heard
    bool manifest = false;
  } durable_;
  std::int64_t complete_ = -1;
  std::int64_t given_up_ = -1;  // in a recovery
  std::int64_t found_ = -1;     // given up, and found whole: to be reported
  RunState state_;
  CheckpointRecord record_;

  struct Paths {
    std::string folder, file, manifest, being;  // being: the manifest's until it is whole
  } path_;
  std::vector<std::string> folders_;  // to be made durable; paths of the chain
  BufferPtr file_, text_;
  std::string manifest_;
  std::uint64_t bytes_ = 0, digest_ = 0;
  std::deque<Transfer> chain_;  // under way, each after the one before; stays in place
  // Transfers and memory that a disk which does not answer may still use.
  std::vector<std::deque<Transfer>> stuck_;
  std::vector<BufferPtr> stuck_memory_;
};

}  // namespace seeksim::runtime
