// How far an operation of `fast` arithmetic may be from the contract's, given the same inputs
// (docs/fast-arithmetic.md). In any order of n additions, fused or not, an fp32 sum is off by at most n * 2^-24 *
// sum |terms|, to first order. The contract's is one such sum, too, hence twice that. The reference is the contract's
// fp32 value before it is rounded to its storage type. The stored value is judged, hence half an ulp of that type.
//
// Arrays are the host's.
#pragma once

#include "kernels/arithmetic.h"

namespace seeksim::kernels {

// (|A| |B|)_ij + |bias_j|, of op(A) and op(B).
template <class T, class To>
void gemm_magnitudes(const GemmCall<T, To>& call, Mat<float> out);
// out[i] = the sum over parts of |part[i]|, times |factor|.
void sum_magnitudes(const SumCall& call, Vec<float> out);

// The bound on the error of a sum of `terms` (a product's K, and one more for a bias or a factor).
double sum_bound(Index terms, float magnitude, bool tf32 = false);
template <class To>
double half_ulp(double at_most);  // of the largest value that could have been rounded

// An element compared with its bound.
struct Looked {
  Index row = 0, column = 0;
  float exact = 0;  // the contract's, before it is stored
  float fast = 0;
  double bound = 0;  // half an ulp included
  // The error beyond the rounding of storage, as a share of the bound on the sum: over 1 is too much.
  double ratio = 0;
};
struct Comparison {
  Index elements = 0;
  Index over = 0;
  Looked worst;
  Looked first;  // over its bound, by rows; where `over` is not 0
};

// Infinities and NaNs are not a matter of rounding. If the contract's value is one, so must be the other. If it is not,
// the other may be one only if the bound reaches past the largest value of its type.
template <class To>
Comparison compare(Mat<const To> fast, Mat<const float> exact, Mat<const float> magnitudes, Index terms,
                   bool tf32 = false);

}  // namespace seeksim::kernels
