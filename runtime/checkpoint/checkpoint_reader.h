// CheckpointReader: what a rank needs of a checkpoint, out of files that any other layout may have written, into its
// places. A file is used only after its size and digest were found right, and a rank is content only if every element
// of each place came from exactly one file.
#pragma once

#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "runtime/checkpoint/checkpoint_format.h"
#include "runtime/checkpoint/node_files.h"
#include "runtime/files/file_io.h"
#include "runtime/files/safetensors.h"
#include "runtime/launch/launcher.h"

namespace seeksim::runtime {

// Elements of a parameter from `first` on, of the whole one, and where they belong on this rank.
struct PlaceToFill {
  PieceName name;
  AnyVec values;
};

// This checkpoint cannot be used; another one may.
struct BadCheckpoint : std::runtime_error {
  using std::runtime_error::runtime_error;
};
// There is none that can be used.
struct NoCheckpoint : std::runtime_error {
  using std::runtime_error::runtime_error;
};

class CheckpointReader {
 public:
  // nodes: brings files to all ranks where each node has its own; null: all see the same.
  CheckpointReader(Rank& rank, const TrainPlan& plan, NodeFiles* nodes = nullptr)
      : rank_(rank), plan_(plan), nodes_(nodes), io_(rank, plan) {}

  // The newest one that holds at most so many steps; -1: there is none.
  std::int64_t newest(std::int64_t steps_most);
  // Fills the places. Waits. All members alike. Throws BadCheckpoint; what it filled then is worth nothing.
  RunState read(std::int64_t step, std::span<const PlaceToFill> places);
  // Those that hold more steps than this, complete or not, are gone afterwards.
  void discard_newer(std::int64_t step);

 private:
  struct Progress;
  Manifest manifest_of(const std::string& folder, std::int64_t step);
  void read_file(const std::string& folder, const CheckpointFile& file, std::vector<Progress>& progress);
  static std::vector<std::pair<AnyVec, AnyVec>> find_values(Buffer& file, std::uint64_t size,
                                                            std::vector<Progress>& progress);
  BufferPtr content_of(const std::string& path, const CheckpointFile& file, const std::vector<Progress>& progress);
  bool concerns(const std::string& path, const CheckpointFile& file, const std::vector<Progress>& progress);
  void read_shapes(const std::string& folder, std::span<const PlaceToFill> places);
  template <class Read>
  auto with_retries(const std::string& path, Read read);
  Transfer transfer(const std::string& path, AnyVec values) const;

  Rank& rank_;
  const TrainPlan& plan_;
  NodeFiles* nodes_;
  FileIo io_;
};

}  // namespace seeksim::runtime
