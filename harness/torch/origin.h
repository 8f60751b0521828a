// Where a difference between two runs began: before a collective, in it, or after it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "harness/torch/run_record.h"

namespace seeksim::harness::torch {

// Where the gradient behind a difference began to differ.
enum class Origin : std::uint8_t {
  unknown,            // the records do not tell
  before_collective,  // what a rank gave to it differed
  in_collective,      // all gave the same, and got something else
  after_collective,   // all collectives before are the same: the optimizer, or the script
  count_
};
std::string_view name(Origin origin);

// The first thing that differs.
struct FirstDifference {
  std::int64_t step = 0;
  std::int32_t micro_batch = 0;
  int rank = 0;
  std::string what;                             // "weight blocks.0.up.weight [256,64] (Linear)" or "loss"
  std::string values;                           // of losses: both
  std::size_t of_step = 0, differ_in_step = 0;  // weights of that step and rank
  Origin origin = Origin::unknown;
  std::string origin_text;  // "rank 1 gave something else to all_reduce #4 of group 0 (step 2, backward) at ..."
};

// Fills `origin` and its text from the collectives of both runs up to the first difference. Both need the same
// collectives in the same order; where they do not have them, gradients as the optimizer got them tell what they can.
void find_origin(const std::vector<RankRun>& a, const std::vector<RankRun>& b, FirstDifference& first);

}  // namespace seeksim::harness::torch
