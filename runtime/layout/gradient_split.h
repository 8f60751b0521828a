// GradientSplit: where experts are divided among ranks, a rank's gradients are of two kinds. Those of experts are
// summed over the samples of its whole expert group, all others over its own until the group's come together. Each kind
// of each piece has nodes of its own, in which its ranges of the gradient space lie one after the other.
#pragma once

#include <array>
#include <cstddef>
#include <vector>

#include "runtime/layout/parameters.h"

namespace seeksim::runtime {

class GradientSplit {
 public:
  explicit GradientSplit(const Parameters& parameters);

  // Elements [lo, hi) of the gradient space, all of one kind, of one piece.
  struct Run {
    Index lo = 0;
    Index hi = 0;
    bool experts = false;
    Index at = 0;  // in the nodes of its kind
    std::size_t piece = 0;
  };
  // All of them, ascending. Neighbours are of different kinds, or pieces.
  const std::vector<Run>& runs() const { return runs_; }
  const Run& run_of(Index gradient) const;
  // Elements of a kind; those of one piece.
  Index size(bool experts) const;
  Index size(bool experts, std::size_t piece) const { return sizes_[piece][experts ? 1 : 0]; }

 private:
  void add(Index lo, Index hi, bool experts, std::size_t piece);

  std::vector<Run> runs_;
  std::vector<std::array<Index, 2>> sizes_;  // by piece: others, experts
};

}  // namespace seeksim::runtime
