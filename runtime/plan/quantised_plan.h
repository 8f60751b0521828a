// QuantisedWeightsPlan: weights are computed with as they are worth in 8 bits (ZeRO++'s qwZ). It decides bits: all that
// a layer computes with is rounded, whoever gathered it, and what the optimizer updates is not.
#pragma once

namespace seeksim::runtime {

struct QuantisedWeightsPlan {
  bool weights = false;
  int block = 1024;  // elements of a tensor's slab that share a scale: a power of two, at most 1024

  bool on() const { return weights; }
  friend bool operator==(const QuantisedWeightsPlan&, const QuantisedWeightsPlan&) = default;
};

}  // namespace seeksim::runtime
