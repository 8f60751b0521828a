// What all products_*.cpp have in common. Everything but the table has internal linkage, so that nothing compiled for
// one instruction set can be linked into the path of another.
#if defined(__AVX2__)
#include <immintrin.h>
// g++ 12 sees its own _mm256_undefined_ps() as a use of something uninitialised.
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

#include "kernels/isa/table.h"
#include "kernels/math.h"
#include "kernels/scalar.h"
#include "kernels/scratch.h"

namespace seeksim::kernels {
namespace {

#include "kernels/isa/simd.inl"

#include "kernels/isa/pack.inl"

#include "kernels/isa/gemm.inl"

#include "kernels/isa/attention.inl"

}  // namespace

const ProductTable& SEEKSIM_PRODUCT_TABLE() {
  static constexpr ProductTable kTable = {
      .gemm = gemm_body,
      .attention_forward = attention_forward_body,
      .attention_backward = attention_backward_body,
  };
  return kTable;
}

}  // namespace seeksim::kernels
