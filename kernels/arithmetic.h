// Arithmetic: who computes what the numeric contract leaves to vendors in `fast` mode (NUMERICS.md): matrix products,
// and sums over the ranks of a group. A Lane that names one has its products and tree sums computed by it; everything
// else stays with the contract's kernels. FastArithmetic (fast.h) is one; the audit of the runtime, which holds it
// against the contract, is another.
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
  Index segment = 0;  // the contract's; a vendor cuts K as it likes
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
  // What a library made of the same parts (out.n floats, not multiplied by the factor); null: none did. For an audit.
  const float* library = nullptr;
};

class Arithmetic {
 public:
  virtual ~Arithmetic() = default;
  virtual void gemm(Lane lane, const AnyGemm& call) = 0;
  // `out` may be one of the parts, and overlaps no other one.
  virtual void sum(Lane lane, const SumCall& call, Vec<float> out) = 0;
  // What a member brings to a sum that a library makes, as it is given to the library: in place.
  virtual void addend(Lane lane, Vec<float> values) = 0;
};

}  // namespace seeksim::kernels
