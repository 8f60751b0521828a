// Matrix products whose every element is an ascending fma chain (F1), or chains over K-segments folded by the aligned
// tree (F2). The bits of C(i, j) depend on row i of op(A), column j of op(B) and `segment`, and on nothing else: not on
// M, N, tiling, instruction set or neighbours. See docs/numerics.md, "Forms", and bench/README.md for speed goals.
#pragma once

#include "kernels/view.h"

namespace seeksim::kernels {

enum class Trans : std::uint8_t { no, yes };

// C (M, N) = op(A) (M, K) * op(B) (K, N), overwriting C.
//   op(A) is A (M, K) or, with Trans::yes, the transpose of A (K, M); likewise op(B) from B (K, N) or B (N, K).
//   segment: length of a K-segment; 0 or >= K is one chain (F1). Segments are [s*segment, (s+1)*segment), tree over s.
//   bias: when n > 0 (must be N), C(i, j) = sum + bias[j], one add after the sum.
// K = 0 gives +0 (+ bias). Arrays must not overlap. Throws nothing; asserts on inconsistent shapes.
// A, B and bias are stored as T (float, bf16, fp16), C as T or as floats (To): operands are widened exactly, sums are
// fp32, C is rounded once.
template <class T = float, class To = T>
void gemm(Lane lane, Trans ta, Trans tb, InMat<T> a, InMat<T> b, OutMat<To> c, Index segment = 0, InVec<T> bias = {});

}  // namespace seeksim::kernels
