// CompressionPlan: what gradients are rounded to on their way to the ranks that sum them, and which part of the batch
// is compressed as one. It decides bits: an algorithm with 4 groups is another one than with 8. The ranks decide none.
#pragma once

#include <bit>
#include <cstdint>

namespace seeksim::runtime {

enum class Compression : std::uint8_t {
  none,
  fp16,
  bf16,
  int8,   // 8 bits an element and a power of two a block
  sign,   // one bit an element and the mean magnitude of a block
  top,    // the largest elements of each block
  power,  // PowerSGD: two thin factors of each matrix
};

// What the optimizer does before, and while, what it is given is compressed.
enum class CompressedOptimizer : std::uint8_t {
  none,         // gradients are compressed, and the optimizer is any
  onebit_adam,  // 1-bit Adam (Tang et al. 2021)
};

struct CompressionPlan {
  Compression method = Compression::none;
  int groups = 0;  // into which a step's samples are cut; each is compressed apart, as a worker's gradient is
  bool error_feedback = true;   // what rounding takes from a group's gradient is added to its next one
  int top = 16;                 // elements of each block of 1,024 that are sent
  int rank = 1;                 // power: columns of a factor
  bool warm_start = true;       // power: a step begins with the factor of the one before; false: with a drawn one
  std::int64_t start_step = 0;  // steps before it are not compressed; of an optimizer's momentum: steps that it made
  CompressedOptimizer optimizer = CompressedOptimizer::none;

  static constexpr int kNoLevel = 62;  // above every tree

  bool on() const { return method != Compression::none; }
  bool in_factors() const { return method == Compression::power; }
  bool of_momentum() const { return on() && optimizer != CompressedOptimizer::none; }
  // Whether a step is compressed, when the optimizer has made so many.
  bool compresses(std::int64_t step, std::int64_t made) const {
    return on() && (of_momentum() ? made : step) >= start_step;
  }
  // Whether there was one, when so many are committed.
  bool has_compressed(std::int64_t steps, std::int64_t made) const {
    return on() && (of_momentum() ? made : steps) > start_step;
  }
  // Samples of a group; 1 where nothing is compressed, so that any cut is one of whole groups.
  std::int64_t group_samples(std::int64_t batch) const { return on() ? batch / groups : 1; }
  // A group is a node of this level of the tree over the step's samples: sums go no higher before they are compressed.
  int group_level(std::int64_t batch) const {
    return on() ? std::bit_width(std::uint64_t(group_samples(batch))) - 1 : kNoLevel;
  }
  friend bool operator==(const CompressionPlan&, const CompressionPlan&) = default;
};

}  // namespace seeksim::runtime
