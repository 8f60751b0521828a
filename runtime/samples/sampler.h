// Sampler: which sample of a data set stands at a place of the training, counted in samples over all steps. A pure
// function of (seed, epoch, index), so that any rank can tell it for any place at any time (docs/data.md).
#pragma once

#include <cstdint>

#include "runtime/plan/plan.h"

namespace seeksim::runtime {

// Where a sampler stands: the next sample's epoch and its index in it, and the seed of its orders. Part of a run's
// state.
struct SamplerState {
  std::uint64_t seed = 0;
  std::int64_t epoch = 0;
  std::int64_t index = 0;
  friend bool operator==(const SamplerState&, const SamplerState&) = default;
};

// Bijection of [0, n) for n >= 1, another one for each seed and epoch.
std::int64_t shuffled_row(std::uint64_t seed, std::int64_t epoch, std::int64_t n, std::int64_t index);

// Samples that the data of a definition hold: given ones, or stretches of a text that follow each other and share one
// token each; at most as many as the plan asks for. 0: as many as one likes, of synthetic ones.
std::int64_t samples_of_data(const Definition& definition);

class Sampler {
 public:
  Sampler() = default;  // of a training without a data set
  // Throws std::runtime_error where there are no samples, or fewer than a batch that drop_last leaves out.
  explicit Sampler(const Definition& definition);

  bool on() const { return plan_.on(); }
  // Samples that an epoch uses: all, or with drop_last those of whole batches.
  std::int64_t used_in_epoch() const { return used_; }
  // Of the place `position` of the training.
  SamplerState at(std::int64_t position) const;
  std::int64_t row(std::int64_t position) const;

  // For planted bugs.
  Sampler with_seed(std::uint64_t seed) const;
  Sampler without_epochs() const;

 private:
  SamplerPlan plan_;
  std::uint64_t seed_ = 0;
  std::int64_t samples_ = 0;
  std::int64_t used_ = 1;
  bool one_order_ = false;
};

}  // namespace seeksim::runtime
