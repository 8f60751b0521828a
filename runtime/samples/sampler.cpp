// A permutation without memory: a Feistel network over pairs of halves of a number, with Philox in its rounds. Numbers
// that fall outside of the data set go through it again.
#include "runtime/samples/sampler.h"

#include <algorithm>
#include <bit>
#include <stdexcept>
#include <string>

#include "kernels/random.h"

namespace seeksim::runtime {
namespace {

// Op ids of the rounds' random streams, one each.
constexpr std::uint32_t kOrderStream = 0xdada1000u;
constexpr std::uint32_t kRounds = 8;

std::uint32_t round_word(std::uint64_t seed, std::int64_t epoch, std::uint32_t round, std::uint32_t half) {
  const kernels::PhiloxCounter counter = {half, static_cast<std::uint32_t>(epoch), kOrderStream + round,
                                          static_cast<std::uint32_t>(epoch >> 32)};
  return kernels::philox(counter, seed)[0];
}

}  // namespace

std::int64_t shuffled_row(std::uint64_t seed, std::int64_t epoch, std::int64_t n, std::int64_t index) {
  const auto bits = static_cast<std::uint32_t>(std::bit_width(static_cast<std::uint64_t>(n - 1)));
  const std::uint32_t half = std::max(1u, (bits + 1) / 2);
  const std::uint64_t mask = (std::uint64_t(1) << half) - 1;
  auto at = static_cast<std::uint64_t>(index);
  do {
    std::uint64_t left = at >> half, right = at & mask;
    for (std::uint32_t round = 0; round < kRounds; ++round) {
      const std::uint64_t word = round_word(seed, epoch, round, static_cast<std::uint32_t>(right));
      const std::uint64_t mixed = left ^ (word & mask);
      left = right, right = mixed;
    }
    at = left << half | right;
  } while (at >= static_cast<std::uint64_t>(n));
  return static_cast<std::int64_t>(at);
}

std::int64_t samples_of_data(const Definition& d) {
  const std::int64_t wanted = d.data.sampler.samples, row = std::int64_t(d.model.context) + 1;
  std::int64_t there = 0;
  if (!d.data.tokens.empty())
    there = std::int64_t(d.data.tokens.size()) / row;
  else if (!d.data.synthetic)
    there = (std::int64_t(d.data.bytes.size()) - d.data.held_out_bytes - 1) / d.model.context;
  else
    return wanted;
  return wanted > 0 ? std::min(wanted, there) : there;
}

Sampler::Sampler(const Definition& d) : plan_(d.data.sampler) {
  if (!on()) return;
  seed_ = plan_.seed >= 0 ? static_cast<std::uint64_t>(plan_.seed) : d.training_seed;
  samples_ = samples_of_data(d);
  used_ = plan_.drop_last ? samples_ - samples_ % d.global_batch : samples_;
  if (used_ <= 0)
    throw std::runtime_error("a data set of " + std::to_string(samples_) + " samples has no whole batch of " +
                             std::to_string(d.global_batch));
}

SamplerState Sampler::at(std::int64_t position) const { return {seed_, position / used_, position % used_}; }

std::int64_t Sampler::row(std::int64_t position) const {
  const SamplerState place = at(position);
  if (plan_.order != SampleOrder::shuffled) return place.index;
  return shuffled_row(seed_, one_order_ ? 0 : place.epoch, samples_, place.index);
}

Sampler Sampler::with_seed(std::uint64_t seed) const {
  Sampler other = *this;
  other.seed_ = seed;
  return other;
}

Sampler Sampler::without_epochs() const {
  Sampler other = *this;
  other.one_order_ = true;
  return other;
}

}  // namespace seeksim::runtime
