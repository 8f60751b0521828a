// The scale of gradients in two runs. A sum over ranks that nothing divides by their number is no other training under
// Adam, whose step does not depend on it, so that the weights do not show the mistake.
#pragma once

#include <string>

#include "harness/torch/run_record.h"

namespace seeksim::harness::torch {

// How many times as large the gradients are that the optimizer gets in the first step of `turned` as in that of
// `plain`: the median over weights, whole ones of rank 0. 1 where there is nothing to compare.
double gradient_scale(const TorchRun& plain, const TorchRun& turned);

// What is wrong where two runs of different numbers of ranks share the samples of a step; empty: nothing.
std::string scale_text(const TorchRun& plain, const TorchRun& turned);

}  // namespace seeksim::harness::torch
