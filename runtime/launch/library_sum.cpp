#include "runtime/launch/library_sum.h"

#include "kernels/host_access.h"
#include "kernels/pointwise.h"
#include "kernels/tree.h"

namespace seeksim::runtime {

using kernels::Lane;
using kernels::Vec;

void add_up(Launcher& launch, const char* tensor, std::span<const VecView<const float>> parts, VecView<float> addend) {
  if (parts.empty()) {
    launch(
        tensor, SEEKSIM_SITE, memory_cost(addend.n, 0), [](Lane lane, Vec<float> x) { kernels::clear(lane, x); },
        addend);
    return;
  }
  launch(
      tensor, SEEKSIM_SITE, memory_cost(2 * addend.n, 0),
      [alone = parts.size() == 1](Lane lane, Vec<const float> part, Vec<float> sum) {
        kernels::copy(lane, part, sum);
        if (alone) kernels::library_addend(lane, sum);
      },
      parts.front(), addend);
  for (std::size_t i = 1; i < parts.size(); ++i) {
    launch(
        tensor, SEEKSIM_SITE, memory_cost(3 * addend.n),
        [last = i + 1 == parts.size()](Lane lane, Vec<const float> part, Vec<float> sum) {
          kernels::tree_add(lane, sum, part, sum);
          if (last) kernels::library_addend(lane, sum);
        },
        parts[i], addend);
  }
}

void scale_sum(Launcher& launch, const char* tensor, float factor, VecView<float> sum) {
  if (factor == 1.0f || sum.n == 0) return;
  launch(
      tensor, SEEKSIM_SITE, memory_cost(2 * sum.n),
      [factor](Lane lane, Vec<float> x) { kernels::scale(lane, x, factor); }, sum);
}

}  // namespace seeksim::runtime
