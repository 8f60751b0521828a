// Ranks as words of a sentence, for reports and reasons.
#pragma once

#include <string>
#include <vector>

namespace seeksim::runtime {

// "rank 3", "ranks 1, 2 and 5"; of many, runs of neighbours together: "ranks 0-49 and 51-127".
std::string rank_names(const std::vector<int>& ranks);

}  // namespace seeksim::runtime
