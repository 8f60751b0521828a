// Digests that do not see the layout: a hash over the hashes of 1024-element blocks, NaNs mapped to one pattern (R9).
#pragma once

#include "kernels/view.h"

namespace seeksim::kernels {

// XXH3-64 of the bytes of up to 1024 elements stored as T (float, bf16, fp16). Every NaN is read as 0x7fffffff, in 16
// bits as 0x7fff.
template <class T = float>
std::uint64_t block_digest(InVec<T> block);

// Hash over the block digests of x in order.
template <class T = float>
std::uint64_t digest(InVec<T> x);

// Order-dependent combination of two hashes (for tensors into a parameter digest, Ops into a fingerprint).
std::uint64_t combine(std::uint64_t seed, std::uint64_t value);

}  // namespace seeksim::kernels
