// Puts together the parts that tensor-parallel or sequence-parallel ranks ("ways") make. A dimension of n elements is
// split into 8 slabs of slab_size(n), the last ones short or empty. Way w of `ways` (1, 2, 4, 8) has the slabs
// [w * 8 / ways, (w + 1) * 8 / ways), so what it sums over them is a node of the tree over slabs. Folding those nodes
// in the tree's order gives the bits of one way. A way is an index here, as a sample is; ranks are not known.
#pragma once

#include "kernels/view.h"

namespace seeksim::kernels {

// Elements [first, first + size) of a dimension.
struct Stretch {
  Index first = 0;
  Index size = 0;
  friend bool operator==(const Stretch&, const Stretch&) = default;
};

// The stretch of n elements that a way has; an empty one at n if all its slabs are empty.
Stretch stretch_of_way(Index n, int ways, int way);
// How many ways, the first ones, have any of n elements.
int filled_ways(Index n, int ways);
// The way that has an element.
int way_of(Index element, Index n, int ways);

// Below, row w of `nodes` is the node of way w; only filled ways have one.

// y (R, C) = sum over ways of their nodes + bias, rounded once. Equals gemm over all of K with segments of a slab, if
// way w has made gemm<T, float> over its stretch of K. nodes (ways, R * C). bias: used when n > 0 (must be C).
template <class T = float>
void add_ways(Lane lane, Mat<const float> nodes, InVec<T> bias, OutMat<T> y);

// out (C): the tree node of consecutive samples, where way w has each sample's node over its token segments: F3 over
// the ways inside each sample first, then F3 over samples. nodes (ways, samples * C), from layer_norm_sample_grads and
// bias_sample_grads.
void add_samples(Lane lane, Mat<const float> nodes, Vec<float> out);

// out (R) = largest of each column of values (ways, R), as a row's maximum is found (F5).
void max_over_ways(Lane lane, Mat<const float> values, Vec<float> out);

// out (R, C): row r is from the way that has tokens[r] of `vocabulary`, split over `ways`. rows (filled ways, R * C).
template <class T = float>
void select_rows(Lane lane, Vec<const std::int32_t> tokens, Index vocabulary, int ways, InMat<T> rows, OutMat<T> out);

}  // namespace seeksim::kernels
