// QuantisedGroups: where gradients are quantised, which of a step's samples are a group, whose part of a gradient is
// rounded apart, and which groups have a sum that is rounded once more. Both are nodes of the tree over the samples, so
// that they belong to the training and not to its ranks.
#pragma once

#include <bit>

#include "runtime/plan/plan.h"

namespace seeksim::runtime {

struct QuantisedGroups {
  std::int64_t samples = 1;   // of a group
  std::int64_t together = 1;  // of the groups of a sum; a group's where no sum is rounded

  int level() const { return std::bit_width(std::uint64_t(samples)) - 1; }
  int sum_level() const { return std::bit_width(std::uint64_t(together)) - 1; }
  bool sums() const { return together > samples; }
  std::int64_t inner() const { return together / samples; }
};

inline QuantisedGroups quantised_groups(const Definition& d) {
  const QuantisedGradientsPlan& plan = d.quantised_gradients;
  if (!plan.on()) return {};
  const std::int64_t samples = d.global_batch / plan.groups;
  return {samples, plan.inner > 1 ? samples * plan.inner : samples};
}

}  // namespace seeksim::runtime
