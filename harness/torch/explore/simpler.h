// Fewer and plainer faults that do the same.
#pragma once

#include <functional>
#include <vector>

#include "faults/plan.h"

namespace seeksim::harness::torch {

// fails: whether these rules still fail alike; asked at most `tries` times, each of which costs a run. took: how many
// of them it took.
std::vector<faults::Rule> simpler(std::vector<faults::Rule> rules, int tries,
                                  const std::function<bool(const std::vector<faults::Rule>&)>& fails, int& took);

}  // namespace seeksim::harness::torch
