// Which of many scenarios a command runs: those whose path has a pattern in it, and of them every n-th.
#pragma once

#include <string>
#include <vector>

#include "harness/run/options.h"

namespace seeksim::harness {

// "2/5": the second of five. Throws BadInput.
Shard shard_of(const std::string& text);

// Those with `pattern` in their path; empty: all. Throws BadInput where none is left.
std::vector<std::string> with_pattern(const std::vector<std::string>& files, const std::string& pattern);

// Those of the shard: may be none.
std::vector<std::string> of_shard(const std::vector<std::string>& files, const Shard& shard);

// What was red in the last call with several scenarios that was made from this folder, for --last-failed. Kept in the
// user's cache (XDG_CACHE_HOME, else ~/.cache); where none can be written, nothing is remembered.
void remember_failed(const std::vector<std::string>& files);
// Throws BadInput where nothing is remembered.
std::vector<std::string> last_failed();
// Of `files` those that failed last; of none, all that did.
std::vector<std::string> that_failed_last(const std::vector<std::string>& files);

}  // namespace seeksim::harness
