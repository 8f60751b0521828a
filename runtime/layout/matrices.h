// The matrices of hidden layers, for an optimizer that takes each as a whole (Muon). A matrix is a tensor of Hugging
// Face's files: queries, keys and values of a Llama are three, and so are the gate, the up and the down matrix of each
// expert, wherever their rows lie here.
#pragma once

#include <vector>

#include "runtime/layout/parameters.h"

namespace seeksim::runtime {

// Those of `p` as it is held here, in the order of the files. Empty: it is no matrix of a layer (embeddings, positions,
// the head, and what has one dimension).
std::vector<Matrix> matrices_of(const ModelPlan& plan, const ParameterInfo& p);

}  // namespace seeksim::runtime
