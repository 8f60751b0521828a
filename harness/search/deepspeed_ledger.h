// What DeepSpeed with NCCL and fused kernels holds on a GPU: an estimate by formulas, beside the exact ledger of a dry
// run. It has no canonical partial sums and no attention probabilities, which seeksim's own ledger has.
#pragma once

#include <string>
#include <vector>

#include "harness/scenario/scenario.h"

namespace seeksim::harness {

struct LedgerLine {
  std::string name;
  double bytes = 0;
  std::string formula;  // in words
};

// Lines of the rank that holds most: model states, which are DeepSpeed 0.19's own estimate
// (estimate_zero2_model_states_mem_needs, estimate_zero3_model_states_mem_needs); activations of the micro-batches that
// are under way (after Korthikanti et al. 2022, with fused attention); logits; buckets; what the allocator has beside
// that; what CUDA takes. Held against the memory of 82 runs of BLOOM (docs/planning-memory.md).
std::vector<LedgerLine> deepspeed_ledger(const Scenario& scenario);
double sum_of(const std::vector<LedgerLine>& ledger);

}  // namespace seeksim::harness
