// SwappedParameters: a shard's parameters to compute with, in a file but for those that stay in host memory (the front
// of the shard, "max_in_cpu"). Units, a parameter's elements inside the shard or a part of them, are what is read and
// written at a time. A module's units are read ahead into staging memory while the modules before it run.
//
// One file is enough: what defines the shard is elsewhere (masters in host memory or in files of their own), so that
// whatever happens to this file between a commit and the next step it is written again from there.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runtime/comm/edge.h"
#include "runtime/files/file_io.h"
#include "runtime/layout/partition.h"

namespace seeksim::runtime {

class SwappedParameters {
 public:
  // pieces: the shard's, in order. name: of the file, unique on this rank.
  SwappedParameters(Rank& rank, const TrainPlan& plan, const std::string& name,
                    const std::vector<ParameterPiece>& pieces, ElementType type);

  // Elements at the front of the shard that are no business of the file.
  Index resident() const { return resident_; }

  // All of the shard, from memory of the host. The host waits.
  void store(AnyVec all);
  // Memory that reading and writing pass through; not the second time. Before a commit point, since a step that is
  // committed must not fail for want of memory.
  void open_stages();

  // One step of the optimizer hands them over in order: elements [at, at + n) of the shard, updated by what is enqueued
  // on the host's queue now. The host waits until whole units are in the file. Returns when the memory of `values` is
  // free.
  Event put(Launcher& host, AnyVec values, Index at);

  // Begins to read what of [at, at + n) is in the file, as far as there is staging memory; false: not all of it.
  bool read_ahead(Index at, Index n, const Op& op);
  // What of [at, at + n) is in the file, to its place `to` on the device, enqueued on the launcher's queue. The host
  // waits for the file; and for what went through the same memory before, which may hang in `last`, an operation of
  // `comm`.
  void bring(Launcher& launch, Index at, AnyVec to, const Op& op, Communicator& comm, const Op& last);
  // After a failure, when nothing is pending: what was read ahead.
  void forget();

  void remove_file();

 private:
  struct Unit {
    Index at = 0;
    Index size = 0;
    std::uint64_t digest = 0;
  };
  struct Stage {
    BufferPtr buffer;
    Transfer read;
    std::ptrdiff_t unit = -1;  // that is read into it, or has been; -1: free
    Event free;                // its last user is through
    Event before;              // the end of the use before this read
  };

  template <class Do>
  void for_units(Index at, Index n, Do&& act);
  AnyVec staged(const Stage& stage, Index n) const { return {stage.buffer.get(), 0, n, type_}; }
  Stage* stage_of(std::ptrdiff_t unit);
  void start_read(Stage& stage, std::ptrdiff_t unit, const Op& op);
  void write(Unit& unit, AnyVec values, std::int64_t step);

  Rank& rank_;
  const TrainPlan& plan_;
  FileIo io_;
  ElementType type_;
  std::string path_;
  Index resident_ = 0, largest_ = 1;
  std::vector<Unit> units_;  // ascending, without gaps, from resident_ on
  std::vector<std::unique_ptr<Stage>> stages_;
  BufferPtr collected_;   // a unit whose values come in parts
  std::size_t next_ = 0;  // stage to be taken first
  bool there_ = false;
};

}  // namespace seeksim::runtime
