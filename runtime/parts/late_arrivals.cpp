#include "runtime/parts/late_arrivals.h"

#include <algorithm>

#include "kernels/random.h"

namespace seeksim::runtime {
namespace {

constexpr std::uint32_t kDelayStream = 0x6c617465;  // of Philox counters, apart from weights, data and dropout

}  // namespace

int delay_of(const Definition& definition, std::int64_t worker, std::int64_t made) {
  const StalenessPlan& plan = definition.staleness;
  switch (plan.delays) {
    case Delays::most:
      return plan.bound;
    case Delays::listed:
      return plan.of_workers[std::size_t(worker)];
    case Delays::skewed: {
      const std::int64_t window = std::int64_t(plan.bound) + 1;
      return int(window - 1 - (made + worker) % window);
    }
    case Delays::drawn:
      break;
  }
  const kernels::PhiloxCounter counter{std::uint32_t(std::uint64_t(made) >> 32), std::uint32_t(worker), kDelayStream,
                                       std::uint32_t(made)};
  const std::uint64_t key = plan.seed != 0 ? plan.seed : definition.training_seed;
  const std::uint64_t word = kernels::philox(counter, key)[0];
  return int(word * (std::uint64_t(plan.bound) + 1) >> 32);
}

std::vector<std::int64_t> arrivals(const Definition& definition, std::int64_t worker, std::int64_t clock) {
  const std::int64_t first = std::max<std::int64_t>(0, clock - definition.staleness.bound);
  std::vector<std::int64_t> come;
  std::int64_t latest = 0;  // when the gradients before this one have all come
  for (std::int64_t made = first; made <= clock; ++made) {
    latest = std::max(latest, made + delay_of(definition, worker, made));
    if (latest == clock) come.push_back(made);
  }
  return come;
}

}  // namespace seeksim::runtime
