// What a scenario will take of this machine's memory, before it runs: a world that cannot fit is refused with the way
// out instead of being killed half-way.
#pragma once

#include <cstdint>

#include "harness/scenario/scenario.h"

namespace seeksim::harness {

struct Estimate {
  double parameters = 0;  // of the model
  double bytes_per_rank = 0;
  double bytes = 0;  // all ranks, and the one-rank golden
};

// An upper estimate, within a factor of two of what is seen. Where ranks stand for each other, of those that are
// simulated.
Estimate estimate(const Scenario& scenario);
// The same as if none did.
Estimate estimate_rank_by_rank(const Scenario& scenario);

// 124.4 M, 1.2 GiB
std::string count_text(double n);
std::string bytes_text(double bytes);

}  // namespace seeksim::harness
