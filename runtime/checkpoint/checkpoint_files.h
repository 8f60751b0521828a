// What is done with whole checkpoints in a folder: which there are, whether one is whole, and how one goes so that at
// no moment it looks like one and is none.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/checkpoint/checkpoint_format.h"
#include "runtime/seams/seams.h"

namespace seeksim::runtime {

// Steps that have a folder below `path`, newest first; complete or not.
std::vector<std::int64_t> steps_in(Storage& storage, const std::string& path);
// The same, of those that have a manifest.
std::vector<std::int64_t> checkpoints_in(Storage& storage, const std::string& path);
// First the manifest, for good; then the rest.
void remove_checkpoint(Storage& storage, const std::string& folder);
// The folder itself, and those around it up to the first one that has no name: what has to be made durable so that a
// new file in it is found again. Innermost first.
std::vector<std::string> enclosing_folders(const std::string& folder);

// A manifest, and the first thing that is wrong with the checkpoint; empty: every file is there, has the size and
// digest that the manifest says, and is a safetensors file; together they hold each parameter exactly once. Reads all
// of it.
struct Verified {
  Manifest manifest;
  std::string problem;
};
Verified verify_checkpoint(Storage& storage, const std::string& folder);

}  // namespace seeksim::runtime
