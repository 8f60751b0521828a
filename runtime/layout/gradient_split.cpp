#include "runtime/layout/gradient_split.h"

#include <algorithm>

#include "kernels/check.h"

namespace seeksim::runtime {

GradientSplit::GradientSplit(const Parameters& parameters) : sizes_(parameters.pieces().size()) {
  for (const ParameterInfo* p : parameters.trainable())
    add(p->offset, p->offset + p->size, parameters.part().cuts_experts(*p), parameters.piece_of(p->offset));
  // The head's share, the loss.
  add(parameters.trainable_size(), parameters.gradient_size(), false, sizes_.size() - 1);
}

void GradientSplit::add(Index lo, Index hi, bool experts, std::size_t piece) {
  Index& size = sizes_[piece][experts ? 1 : 0];
  if (!runs_.empty() && runs_.back().experts == experts && runs_.back().piece == piece)
    runs_.back().hi = hi;
  else
    runs_.push_back({lo, hi, experts, size, piece});
  size += hi - lo;
}

Index GradientSplit::size(bool experts) const {
  Index all = 0;
  for (const std::array<Index, 2>& of_piece : sizes_) all += of_piece[experts ? 1 : 0];
  return all;
}

const GradientSplit::Run& GradientSplit::run_of(Index gradient) const {
  const auto after = std::upper_bound(runs_.begin(), runs_.end(), gradient,
                                      [](Index element, const Run& run) { return element < run.lo; });
  SEEKSIM_CHECK(after != runs_.begin() && gradient < runs_.back().hi, "element %lld of the gradients",
                static_cast<long long>(gradient));
  return *(after - 1);
}

}  // namespace seeksim::runtime
