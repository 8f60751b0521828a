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

// QuantisedGradientsPlan: what a group of samples adds to a gradient is rounded to few bits before groups are summed
// (ZeRO++'s qgZ). It decides bits: the number of groups belongs to the definition, the ranks do not.
struct QuantisedGradientsPlan {
  int groups = 0;      // into which a step's samples are cut; 0: off
  int inner = 0;       // groups whose sum is rounded once more on its way to other nodes; 0: one level
  int bits = 4;        // of an element, on the first way
  int outer_bits = 8;  // on the second
  int block = 1024;    // elements that share a scale: a power of two, at most 1024

  bool on() const { return groups > 0; }
  friend bool operator==(const QuantisedGradientsPlan&, const QuantisedGradientsPlan&) = default;
};

}  // namespace seeksim::runtime
