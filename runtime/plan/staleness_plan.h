// StalenessPlan: a training whose workers' gradients come late, as those of asynchronous data parallelism do
// (Ho et al. 2013). It decides bits: which gradient enters which step is drawn from the seed, never from time.
#pragma once

#include <bit>
#include <cstdint>
#include <vector>

namespace seeksim::runtime {

enum class Delays : std::uint8_t {
  most,    // every gradient enters `bound` steps late
  drawn,   // each comes 0 to `bound` steps late, at random by (seed, worker, step)
  listed,  // each worker has its own delay
  skewed,  // each worker adds up bound + 1 gradients and sends them together, not all workers in the same step
};

struct StalenessPlan {
  int workers = 0;  // into which a step's samples are cut; 0: off
  int bound = 1;    // steps that a gradient may be late, at most
  Delays delays = Delays::most;
  std::vector<int> of_workers;  // listed: in steps
  std::uint64_t seed = 0;       // drawn

  bool on() const { return workers > 0; }
  // A worker's samples of a step, and the level of the tree over the step's samples on which it is a node.
  std::int64_t samples(std::int64_t batch) const { return batch / workers; }
  int level(std::int64_t batch) const { return std::bit_width(std::uint64_t(samples(batch))) - 1; }
  friend bool operator==(const StalenessPlan&, const StalenessPlan&) = default;
};

}  // namespace seeksim::runtime
