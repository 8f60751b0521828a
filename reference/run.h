// The whole training, freely running: from the first weights on, without a look at any other run.
#pragma once

#include <cstdint>
#include <vector>

#include "reference/training.h"

namespace seeksim::reference {

struct FreeRun {
  // By step: the values, and how far a step's own rounding may move them.
  std::vector<double> loss, loss_bound;
  std::vector<double> norm, norm_bound;
  // By step: which experts the tokens went to, as a hash; and whether rounding might have sent one of them elsewhere.
  std::vector<std::uint64_t> routing;
  std::vector<bool> unsettled;
  std::vector<std::vector<double>> weights;  // after the last step, by parameter
  // With them: the loss of the held-out samples, where there are any, and how far its own rounding may move it.
  double held_out = 0, held_out_bound = 0;
  bool held_out_unsettled = false;
};

struct FreeOptions {
  std::vector<std::vector<double>> first_weights;  // empty: drawn from the seed
  std::vector<bool> skipped;                       // by step, which of them are not applied; empty: none
  // Not 0: each gradient and each weight is off by one standard deviation of what rounding does to it, up or down as
  // this seed has it. Runs of several seeds show how far apart two runs may be that are both right.
  std::uint64_t noise = 0;
};

FreeRun run_freely(const Training& t, const FreeOptions& options);

}  // namespace seeksim::reference
