// Ranks as words of a sentence and as a list, for reports and reasons.
#pragma once

#include <string>
#include <vector>

namespace seeksim::runtime {

// "rank 3", "ranks 1, 2 and 5"; of many, runs of neighbours together: "ranks 0-49 and 51-127".
std::string rank_names(const std::vector<int>& ranks);

// "0-4, 6, 7": neighbours from three on together. Empty for no ranks.
std::string rank_list(const std::vector<int>& ranks);

}  // namespace seeksim::runtime
