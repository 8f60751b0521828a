#include "runtime/layout/gradient_split.h"

#include <algorithm>

#include "kernels/check.h"

namespace seeksim::runtime {

GradientSplit::GradientSplit(const Parameters& parameters) {
  for (const ParameterInfo* p : parameters.trainable()) add(p->offset, p->offset + p->size, parameters.part().cuts(*p));
  add(parameters.trainable_size(), parameters.gradient_size(), false);  // the head's share, the loss
}

void GradientSplit::add(Index lo, Index hi, bool experts) {
  Index& size = experts ? experts_ : others_;
  if (!runs_.empty() && runs_.back().experts == experts)
    runs_.back().hi = hi;
  else
    runs_.push_back({lo, hi, experts, size});
  size += hi - lo;
}

const GradientSplit::Run& GradientSplit::run_of(Index gradient) const {
  const auto after = std::upper_bound(runs_.begin(), runs_.end(), gradient,
                                      [](Index element, const Run& run) { return element < run.lo; });
  SEEKSIM_CHECK(after != runs_.begin() && gradient < runs_.back().hi, "element %lld of the gradients",
                static_cast<long long>(gradient));
  return *(after - 1);
}

}  // namespace seeksim::runtime
