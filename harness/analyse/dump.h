// One rank's flight recorder as PyTorch writes it: a pickle or JSON, versions 2.1 to 2.10 and what follows them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "harness/analyse/pickle.h"

namespace seeksim::harness {

// A process group as the dump describes it.
struct DumpGroup {
  std::string name;          // the same on all members
  std::string desc;          // "default_pg"; a name that the script gave; "undefined"
  std::vector<int> members;  // ranks of the job; empty: the dump does not say
};

struct DumpEntry {
  int group = 0;  // of Dump::groups
  bool p2p = false;
  std::int64_t number = 0;  // counted by each rank in each group; sends and receives apart
  std::string operation;    // "all_reduce", "send"
  int peer = -1;            // of a send or receive: a rank of the group
  std::string sizes;        // of what goes in, "[[8], [3, 4]]"; of a receive: of what comes out
  std::string types;        // "Float, Float"
  bool started = false;
  bool over = false;             // ended; with gloo perhaps by an error, which the recorder does not tell apart
  std::int64_t created_ns = -1;  // by the rank's own clock; -1: not recorded
  std::string frame;             // "train.py:41 in step", the innermost of the script; empty: none
};

struct Dump {
  int rank = 0;
  std::string file, version;
  bool gloo = false;    // gloo records no sends and receives, and never says "completed"
  bool whole = false;   // its ring holds everything from the first operation on
  int world_least = 0;  // the job has at least so many ranks
  std::vector<DumpGroup> groups;
  std::vector<DumpEntry> entries;  // in the order in which the rank began them
};

inline constexpr std::uint64_t kDumpFileBytesMax = std::uint64_t(256) << 20;
inline constexpr int kDumpRanksMax = 1 << 20;

// Whether bytes may be a dump: a pickle, or JSON of an object.
bool looks_like_dump(std::string_view bytes);
// The values in a dump. Throws BadInput naming `file`.
Tree dump_tree(std::string_view bytes, const std::string& file);
// Throws BadInput naming `file`: other keys, a version that is not 2.x, a name without a rank.
Dump read_torch_dump(const Tree& tree, const std::string& file);

}  // namespace seeksim::harness
