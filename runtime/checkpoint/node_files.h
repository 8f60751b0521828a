// NodeFiles: files of checkpoints where each node has its own disk. A file that one rank finds whole on its node's disk
// goes to all, through the device's memory; all agree on the sender. All members make every call alike, whatever each
// of them finds, so that none waits in vain.
#pragma once

#include <functional>
#include <string>

#include "runtime/checkpoint/checkpoint_format.h"
#include "runtime/comm/communicator.h"
#include "runtime/files/file_io.h"
#include "runtime/launch/any_vec.h"

namespace seeksim::runtime {

class NodeFiles {
 public:
  // Puts a ballot and returns what all said.
  using Vote = std::function<Agreement(const char* about, const Ballot&)>;

  // A communicator of all members of the epoch, for as long as this lives.
  NodeFiles(Rank& rank, const TrainPlan& plan, std::uint32_t epoch, std::vector<int> members, Vote vote);

  // To be aborted with the rank's others when something fails.
  Communicator& communicator() { return all_; }

  // The text of the manifest in this folder, from the first rank that has one; empty: none has.
  std::string manifest(const std::string& folder);
  // The bytes of a file, in memory of the host; null: no rank has it with this size and digest.
  BufferPtr file(const std::string& path, const CheckpointFile& file);

 private:
  BufferPtr bring(int bearer, const std::string& content, std::uint64_t bytes);
  std::string content_of(const std::string& path, std::uint64_t bytes_max);

  Rank& rank_;
  const TrainPlan& plan_;
  Vote vote_;
  // They hold the file that is being fetched. After a failure they stay until nothing is under way, as this does.
  BufferPtr here_, passage_;
  Communicator all_;
};

}  // namespace seeksim::runtime
