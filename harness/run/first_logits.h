// --save-logits: what the initial weights say about the first batch, before anything is learnt.
#pragma once

#include "harness/scenario/scenario.h"
#include "runtime/files/named_tensor.h"

namespace seeksim::harness {

// "logits", (B, T, V): of each token of the first step's batch on one rank, in fp32, whatever type they were kept in.
// Throws BadInput for a run of shapes, which has none.
runtime::NamedTensor first_logits(const Scenario& scenario);

}  // namespace seeksim::harness
