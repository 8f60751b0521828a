// The angles of rotary positions (kernels/rotary.h): part of the contract, so computed once on the host in double by
// our own code, and rounded to fp32.
#pragma once

#include <vector>

#include "kernels/view.h"

namespace seeksim::runtime {

// (positions, head_dim): row t holds the cosines of t * theta^(-2i / head_dim) for i < head_dim / 2, then their sines.
std::vector<float> rotary_angles(kernels::Index positions, kernels::Index head_dim, double theta);

}  // namespace seeksim::runtime
