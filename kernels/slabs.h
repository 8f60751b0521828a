// How the parts that ways of tensor or sequence parallelism make become the whole. A dimension of n elements is split
// into 8 slabs of slab_size(n), the last ones short or empty; way w of `ways` (1, 2, 4, 8) has the slabs
// [w * 8 / ways, (w + 1) * 8 / ways), and so what it sums over them is a node of the tree over slabs. Folding those
// nodes in the tree's order gives the bits of one way. Ways are indices here, as samples are; who is one is not known.
#pragma once

#include "kernels/view.h"

namespace seeksim::kernels {

// Elements [first, first + size) of a dimension.
struct Stretch {
  Index first = 0;
  Index size = 0;
  friend bool operator==(const Stretch&, const Stretch&) = default;
};

// What a way has of n elements; nothing, at n, where all its slabs are empty.
Stretch stretch_of_way(Index n, int ways, int way);
// Ways that have any of n elements: the first ones.
int filled_ways(Index n, int ways);
// Who has an element.
int way_of(Index element, Index n, int ways);

// The nodes of the filled ways come one after the other: row w of `nodes` is that of way w.

// y (R, C) = sum over ways of their nodes + bias, rounded once: what gemm gives over all of K with a segment of a slab,
// when way w has made gemm<T, float> over its stretch of K. nodes (ways, R * C). bias: when n > 0 (must be C).
template <class T = float>
void add_ways(Lane lane, Mat<const float> nodes, InVec<T> bias, OutMat<T> y);

// out (C): the tree node of consecutive samples, of which way w has the node over its token segments: F3 over the ways
// inside each sample first, then F3 over samples. nodes (ways, samples * C), from layer_norm_sample_grads and
// bias_sample_grads.
void add_samples(Lane lane, Mat<const float> nodes, Vec<float> out);

// out (R) = largest of each column of values (ways, R), as a row's maximum is found (F5).
void max_over_ways(Lane lane, Mat<const float> values, Vec<float> out);

// out (R, C): row r is that of the way that has tokens[r] of `vocabulary` split over `ways`. rows (filled ways, R * C).
template <class T = float>
void select_rows(Lane lane, Vec<const std::int32_t> tokens, Index vocabulary, int ways, InMat<T> rows, OutMat<T> out);

}  // namespace seeksim::kernels
