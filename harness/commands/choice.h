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

}  // namespace seeksim::harness
