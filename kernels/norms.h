// Sums over gradients and other tensors stored as T (float, bf16, fp16): squared norm by blocks, and counts of
// non-finite values; rows that are made orthogonal.
#pragma once

#include "kernels/view.h"

namespace seeksim::kernels {

// out[b] = F4 of x^2 over block b of 1024 elements (the last block short). out.n = ceil(x.n / 1024).
template <class T = float>
void norm2_blocks(Lane lane, InVec<T> x, Vec<float> out);

// out[0] = norm^2 of all of x by the tree: blocks inside slabs of `slab` elements, then slabs. blocks: working space
// for the blocks of one slab.
template <class T = float>
void norm2_of_slabs(Lane lane, InVec<T> x, Index slab, Vec<float> blocks, Vec<float> out);

// out[0] += number of elements of x that are NaN or infinite (F5).
template <class T = float>
void count_nonfinite(Lane lane, InVec<T> x, Vec<std::int64_t> out);

// Rows of length 1, orthogonal to one another (Gram-Schmidt, modified): from the first to the last, a row is divided by
// the root of its square, and its part along it is taken from each later one. Dot products are chains (F1), each
// product rounded. A row of zeroes stays one.
void orthogonalise(Lane lane, Mat<float> rows);

}  // namespace seeksim::kernels
