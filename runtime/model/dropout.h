// Where in a model values are dropped, and the random streams of those places: a mask is a pure function of (training
// seed, step, sample of the step, layer, place, element), so that neither rank, micro-batch, world, attempt nor
// recomputation changes it (docs/numerics.md#r7).
#pragma once

#include "kernels/dropout.h"
#include "runtime/model/model.h"

namespace seeksim::runtime {

enum class DropoutSite : std::uint8_t {
  embedding,         // what goes into the first layer
  attention,         // attention's probabilities
  attention_branch,  // what attention adds to the residual stream
  mlp_branch,        // what the mlp adds to it
  count_
};

// The op id of a place. Outside layers: layer 0. Other streams of the training seed are those of data.cpp, whose ids
// are larger, and the initial weights', whose step no training reaches.
inline std::uint32_t dropout_stream(DropoutSite site, int layer) {
  constexpr std::uint32_t kFirst = 0xd0000000U;
  return kFirst + static_cast<std::uint32_t>(layer) * std::uint32_t(DropoutSite::count_) + std::uint32_t(site);
}

// `rate` with the counters of a place and a batch; of a batch that does not train none.
inline kernels::Dropout dropout_at(kernels::Dropout rate, DropoutSite site, int layer, const Batch& batch) {
  if (!batch.trains) return {};
  rate.key = batch.seed;
  rate.op = dropout_stream(site, layer);
  rate.step = static_cast<std::uint32_t>(batch.step);
  rate.first_sample = static_cast<std::uint32_t>(batch.first_sample);
  return rate;
}

}  // namespace seeksim::runtime
