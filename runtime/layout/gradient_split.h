// GradientSplit: where experts are divided among ranks, a rank's gradients are of two kinds. Those of experts are
// summed over the samples of its whole expert group, all others over its own until the group's come together. Each kind
// has nodes of its own, in which its ranges of the gradient space lie one after the other.
#pragma once

#include <span>
#include <vector>

#include "runtime/layout/parameters.h"

namespace seeksim::runtime {

class GradientSplit {
 public:
  explicit GradientSplit(const Parameters& parameters);

  // Elements [lo, hi) of the gradient space, all of one kind.
  struct Run {
    Index lo = 0;
    Index hi = 0;
    bool experts = false;
    Index at = 0;  // in the nodes of its kind
  };
  // All of them, ascending. Neighbours are of different kinds.
  const std::vector<Run>& runs() const { return runs_; }
  const Run& run_of(Index gradient) const;
  // Elements of a kind.
  Index size(bool experts) const { return experts ? experts_ : others_; }

 private:
  void add(Index lo, Index hi, bool experts);

  std::vector<Run> runs_;
  Index experts_ = 0;
  Index others_ = 0;
};

}  // namespace seeksim::runtime
