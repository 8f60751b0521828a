// Arithmetic: an interface for what `fast` mode leaves to vendors (docs/fast-arithmetic.md): matrix products, and sums
// over the ranks of a group. A Lane that names one has its products and tree sums computed by it; everything else stays
// with the contract's kernels. FastArithmetic (fast.h) is one implementation. The audit of the runtime, which compares
// it with the contract, is another.
#pragma once

#include <variant>

#include "kernels/cast.h"
#include "kernels/tree.h"
#include "kernels/view.h"

namespace seeksim::kernels {

// A call of gemm (gemm.h), checked: c (M, N) = op(a) (M, K) op(b) (K, N) + bias.
template <class T, class To>
struct GemmCall {
  bool ta = false, tb = false;
  Mat<const T> a, b;
  Mat<To> c;
  Index segment = 0;  // of the contract; a vendor cuts K as it likes
  Vec<const T> bias;  // n = 0: none
  Index k() const { return ta ? a.rows : a.cols; }
};
using AnyGemm = std::variant<GemmCall<float, float>, GemmCall<bf16, bf16>, GemmCall<bf16, float>, GemmCall<fp16, fp16>,
                             GemmCall<fp16, float>>;

// A call of tree_sum (tree.h), checked: the sum of all parts, times factor.
struct SumCall {
  const TreePart* parts = nullptr;
  Index count = 0;
  Index leaves = 0;
  float factor = 1;
  int owner = 0;  // of the sum, among the groups
  // A library's sum of the same parts (out.n floats, not multiplied by the factor), for an audit. null: there is none.
  const float* library = nullptr;
};

class Arithmetic {
 public:
  virtual ~Arithmetic() = default;
  virtual void gemm(Lane lane, const AnyGemm& call) = 0;
  // `out` may be one of the parts, and overlaps no other one.
  virtual void sum(Lane lane, const SumCall& call, Vec<float> out) = 0;
  // Edits in place what a member contributes to a library's sum, before the library gets it.
  virtual void addend(Lane lane, Vec<float> values) = 0;
};

}  // namespace seeksim::kernels
