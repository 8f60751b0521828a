// LocalSgdPlan: a training of several workers. Each has weights and moments of its own and takes `every` inner steps on
// its own samples; then an outer step makes one set of weights of all, from which every worker goes on (local SGD,
// FedAvg, DiLoCo). It decides bits: 4 workers are another training than 8. The ranks decide none.
#pragma once

#include <bit>
#include <cstdint>

namespace seeksim::runtime {

enum class OuterRule : std::uint8_t {
  average,   // the mean of the workers' weights
  sgd,       // against the mean change, with momentum where it is not 0 (FedAvgM)
  nesterov,  // the same with Nesterov's momentum (DiLoCo)
};

struct OuterPlan {
  OuterRule type = OuterRule::average;
  double lr = 0.7;        // of sgd and nesterov
  double momentum = 0.9;  // likewise
  bool keeps_momentum() const { return type != OuterRule::average && momentum != 0; }
  friend bool operator==(const OuterPlan&, const OuterPlan&) = default;
};

struct LocalSgdPlan {
  int workers = 0;         // into which a step's samples are cut; 0: all ranks train one set of weights
  std::int64_t every = 1;  // inner steps, applied or skipped, from one outer step to the next
  OuterPlan outer;

  bool on() const { return workers > 0; }
  // A worker's samples of an inner step, and the level of the tree over the step's samples on which it is a node.
  std::int64_t samples(std::int64_t batch) const { return batch / workers; }
  int level(std::int64_t batch) const { return std::bit_width(std::uint64_t(samples(batch))) - 1; }
  // Whether an outer step follows so many committed steps.
  bool meets_after(std::int64_t steps) const { return on() && steps > 0 && steps % every == 0; }
  std::int64_t meetings(std::int64_t steps) const { return on() ? steps / every : 0; }
  friend bool operator==(const LocalSgdPlan&, const LocalSgdPlan&) = default;
};

}  // namespace seeksim::runtime
