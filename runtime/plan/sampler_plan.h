// SamplerPlan: in which order the samples of a data set are used, where the data set has a number of samples.
#pragma once

#include <cstdint>

namespace seeksim::runtime {

enum class SampleOrder : std::uint8_t {
  drawn,       // there is no data set of so many samples: stretches of a text are drawn with replacement
  sequential,  // each epoch from the first sample to the last
  shuffled,    // each epoch in an order of its own
};

struct SamplerPlan {
  SampleOrder order = SampleOrder::drawn;
  std::int64_t seed = -1;    // of shuffled orders; -1: the training's
  std::int64_t samples = 0;  // of the data set; 0: as many as the text or the given batches hold
  bool drop_last = false;    // an epoch's last samples that fill no batch are left out; false: the batch goes on into
                             // the next epoch
  bool on() const { return order != SampleOrder::drawn; }
  friend bool operator==(const SamplerPlan&, const SamplerPlan&) = default;
};

}  // namespace seeksim::runtime
