// Which gradients travel together, where each is reduced as soon as backward has made it.
#pragma once

#include <vector>

#include "runtime/layout/parameters.h"

namespace seeksim::runtime {

// Elements [lo, hi) of the gradient space that travel together.
struct Bucket {
  Index lo = 0;
  Index hi = 0;
  const char* name = "";  // of the first parameter in it
  friend bool operator==(const Bucket& a, const Bucket& b) { return a.lo == b.lo && a.hi == b.hi; }
};

// In the order in which backward completes them, from the end of the gradient space to its front: as many parameters as
// `elements` hold, and one at least. What one launch writes (the two parameters of a norm) stays together. Where
// experts are divided among ranks, a bucket has nothing but experts or none (GradientSplit).
std::vector<Bucket> gradient_buckets(const Parameters& parameters, Index elements);
// In the same order, as torch's DDP fills its buckets: one is full as soon as it holds `elements` or more, the first
// one `first` or more.
std::vector<Bucket> ddp_buckets(const Parameters& parameters, Index first, Index elements);

}  // namespace seeksim::runtime
