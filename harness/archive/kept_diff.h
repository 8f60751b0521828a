// What differs between two kept runs.
#pragma once

#include <string>
#include <vector>

#include "harness/archive/kept_runs.h"

namespace seeksim::harness {

// One value of both. An empty side: the other one alone has it.
struct KeptDifference {
  std::string what;  // "deepspeed.optimizer.params.lr", "loss, from step 3 on"
  std::string a, b;
};

struct KeptDiff {
  std::vector<KeptDifference> configuration;  // by the place of the key
  std::vector<KeptDifference> program;        // one at most
  std::vector<KeptDifference> result;
  bool same_result() const { return result.empty(); }
};

// Keys that say nothing of a run ("name", "why", "$schema") are not compared.
KeptDiff kept_diff(const KeptRun& a, const KeptRun& b);
Json to_json(const KeptDiff& diff);

}  // namespace seeksim::harness
