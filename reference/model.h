// One step's losses and gradients of GPT-2 and Llama (with experts too), by plain loops over samples, tokens and
// channels.
#pragma once

#include <cstdint>
#include <vector>

#include "reference/noisy.h"
#include "reference/parameters.h"
#include "reference/training.h"

namespace seeksim::reference {

// R: double, or Noisy.
template <class R>
struct StepValues {
  R loss{};                               // mean over the tokens of the step
  std::vector<std::vector<R>> gradients;  // by parameter, in the shape of the file, unscaled; empty: frozen
  // Whether some value leaves the range of the type that it is stored in: surely; or it may, by its bound.
  bool overflows = false;
  bool may_overflow = false;
  // Which experts the tokens went to, as a hash; and whether rounding might have sent one of them elsewhere.
  std::uint64_t routing = 0;
  bool unsettled = false;
};

// weights: by parameter, as the optimizer holds them; the passes round them to the type to compute in. tokens (batch,
// T + 1). scale: the loss scale.
template <class R>
StepValues<R> losses_and_gradients(const Training& t, const std::vector<Parameter>& parameters,
                                   const std::vector<std::vector<double>>& weights,
                                   const std::vector<std::int32_t>& tokens, std::int64_t step, double scale);

}  // namespace seeksim::reference
