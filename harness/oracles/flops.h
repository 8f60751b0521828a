// What a step has to compute: the operations of its matrix products, by module; and model FLOPs utilisation (MFU).
#pragma once

#include <string>
#include <vector>

#include "runtime/plan/plan.h"

namespace seeksim::harness {

struct ModuleFlops {
  std::string module;  // "attention projections", "attention", "mlp", "experts", "shared experts", "router", "head"
  double flops = 0;    // of one sample, forward and backward
};

// Of one sample: 2 a multiplication with its addition, forward once and backward twice (Chowdhery et al. 2022, appendix
// B). Attention counts all pairs of positions, though a causal mask uses half; what is computed again is not counted.
// A model of one's own has none: its arithmetic is unknown.
std::vector<ModuleFlops> flops_of_sample(const runtime::ModelPlan& model);
// Of a whole step, over all ranks. 0 for a model of one's own.
double flops_of_step(const runtime::Definition& definition);

}  // namespace seeksim::harness
