// Reductions over the ranks of a group, by the project's numeric contract: F3, the aligned binary tree over the rank's
// place in the group (docs/numerics.md). Each element is reduced by itself, so the bits do not depend on how a tensor
// is cut into buckets or shards, nor on which rank computes them; and because the tree is aligned, a reduction inside
// groups of 2, 4, 8, ... neighbours followed by one across them gives the same bits too.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "pytorch/core/record.h"

namespace seeksim::pytorch {

// In which order floating-point sums (sum, avg, premul_sum) add what the ranks give. All but the canonical one are
// there to measure how far another order moves a training.
enum class SumOrder : std::uint8_t {
  canonical,    // F3: the aligned tree
  reversed,     // one after the other, from the last rank to the first
  rotated,      // the tree, beginning with the second rank
  two_parts,    // each contribution in two parts that add up to it, as of two micro-batches: first parts first
  three_parts,  // the same, in three
  count_
};
std::string_view name(SumOrder order);
// The inverse; count_ where there is no such name.
SumOrder sum_order(std::string_view word);

// Why this reduction has no meaning for this type, as a phrase ("bitwise and of fp32"); empty when it has one.
std::string refusal(DType type, ReduceName reduce);

// out[i] = reduction over r of inputs[r][i], for i < count. Elements of 16 and 8 bits are widened exactly, reduced in
// fp32 and rounded once; fp32 and fp64 are reduced as they are; integers wrap around. avg: the sum divided by the
// number of inputs (integers: towards zero). premul_sum: each element times `factor` first. min and max: NaN where any
// input is NaN. bool: sum and max are "or", product and min are "and". out may be one of the inputs. The caller has
// asked refusal().
void reduce(DType type, ReduceName reduce, std::span<const std::byte* const> inputs, std::byte* out, std::size_t count,
            double factor = 1, SumOrder order = SumOrder::canonical);

}  // namespace seeksim::pytorch
