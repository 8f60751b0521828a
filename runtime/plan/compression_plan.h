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
  none,           // gradients are compressed, and the optimizer is any
  onebit_adam,    // 1-bit Adam (Tang et al. 2021)
  zero_one_adam,  // 0/1 Adam (Lu et al. 2022)
};

struct CompressionPlan {
  Compression method = Compression::none;
  int groups = 0;  // into which a step's samples are cut; each is compressed apart, as a worker's gradient is
  bool error_feedback = true;   // what rounding takes from a group's gradient is added to its next one
  int top = 16;                 // elements of each block of 1,024 that are sent
  int rank = 4;                 // power: columns of a factor
  std::int64_t start_step = 0;  // steps before it are not compressed
  CompressedOptimizer optimizer = CompressedOptimizer::none;
  std::int64_t var_freeze_step = 0;  // zero_one_adam, in DeepSpeed's names
  std::int64_t var_update_scaler = 16;
  std::int64_t local_step_scaler = 1000;
  std::int64_t local_step_clipper = 16;

  static constexpr int kNoLevel = 62;  // above every tree

  bool on() const { return method != Compression::none; }
  // Samples of a group; 1 where nothing is compressed, so that any cut is one of whole groups.
  std::int64_t group_samples(std::int64_t batch) const { return on() ? batch / groups : 1; }
  // A group is a node of this level of the tree over the step's samples: sums go no higher before they are compressed.
  int group_level(std::int64_t batch) const {
    return on() ? std::bit_width(std::uint64_t(group_samples(batch))) - 1 : kNoLevel;
  }
  friend bool operator==(const CompressionPlan&, const CompressionPlan&) = default;
};

}  // namespace seeksim::runtime
