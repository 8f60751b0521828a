// Muon's step on a matrix, by the text of docs/muon.md, in double; and how far fp32 may be from that, measured by doing
// it again with each result moved by what fp32 rounds.
#pragma once

#include <vector>

#include "reference/parameters.h"
#include "reference/step.h"

namespace seeksim::reference {

// Whether the optimizer takes this parameter as a whole matrix: it is one, and of a layer.
bool is_muons(const Optimizer& optimizer, const Parameter& parameter);

struct MatrixBefore {
  std::vector<double> weights, momentum, gradients;  // gradients: as they are held, unscaled
};
// All elements after the step; what stands in `second` is to be as it was. factor: the clipping factor; decay: 0 where
// the parameter does not decay; llama: a row is an output of its layer, else an input.
std::vector<BoundedElement> muon_updated(const Optimizer& optimizer, const Parameter& parameter, bool llama,
                                         const MatrixBefore& before, const Bounded& factor, double decay, double rate);

}  // namespace seeksim::reference
