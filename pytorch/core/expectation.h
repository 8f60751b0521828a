// What each rank believes a collective to be, and who is the odd one out where they differ.
#pragma once

#include <array>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "pytorch/core/record.h"

namespace seeksim::pytorch {

inline constexpr int kMaxRanks = 256;  // of one machine

// A plain value that lies in shared memory. Ranks are places in the group.
struct Expectation {
  OpName op = OpName::all_reduce;
  ReduceName reduce = ReduceName::none;
  DType dtype = DType::none;
  std::int32_t root = -1;
  std::int64_t numel = 0;    // of all tensors that this rank gives (takes, where it gives none)
  std::int64_t tensors = 0;  // how many
  std::uint64_t sizes = 0;   // hash of their sizes, where there are several
  // Of what ranks combine byte by byte: the order of its dimensions in memory (memory_order()). 0: as they are told.
  std::uint64_t layout = 0;
  // Bytes that this rank gives to each rank and takes from each, for the operations where ranks may differ in that.
  std::array<std::int64_t, kMaxRanks> gives = {};
  std::array<std::int64_t, kMaxRanks> takes = {};
};

// The order in which these dimensions lie in memory, the outermost first; of one tensor "1 0", of several a number.
std::uint64_t memory_order(std::span<const int> dimensions);
std::string memory_order_text(std::uint64_t order, std::int64_t tensors);

// "all_reduce fp32 x 134912, sum"
std::string describe(const Expectation& e);

struct Disagreement {
  std::vector<int> odd;  // places in the group, ascending: those outside the largest party; all where there is none
  std::string text;      // one line for each party, or one for each pair of sizes that do not fit
};
// Nothing where all mean the same. launch_ranks: how texts call each place. Values that a stranger may have written do
// no harm: unknown enumerators count as different, sizes are only compared.
std::optional<Disagreement> disagreement(std::span<const Expectation> all, std::span<const int> launch_ranks);

// "rank 1", "ranks 0, 2"
std::string ranks_text(std::span<const int> launch_ranks);

}  // namespace seeksim::pytorch
